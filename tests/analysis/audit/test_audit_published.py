"""What an audit finds in tables that were published; tests/analysis/audits holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import Audit, audits

PUBLISHED = Path(__file__).parents[1] / "audits"


def found(result: Audit, kind: str) -> list[tuple[int, ...]]:
    """The lines of each finding of the class."""
    return [each.lines for each in result.findings if each.kind == kind]


def lines_of(name: str, *cells: str) -> list[int]:
    """Lines of a published table that hold all these cells."""
    rows = (PUBLISHED / name).read_text(encoding="utf-8").splitlines()
    return [i + 1 for i, row in enumerate(rows) if all(cell in f",{row}," for cell in cells)]


def test_bigmnist_every_average_is_wrong() -> None:
    """All 7 printed averages differ from the mean of their rows; that of 4 nodes is above each of them."""
    result = audits(PUBLISHED / "rcc-bigmnist.csv")[0]
    wrong = {lines[-1] for lines in found(result, "average_wrong") + found(result, "average_outside_rows")}
    assert wrong == set(lines_of("rcc-bigmnist.csv", ",Avg,"))
    assert [lines[-1] for lines in found(result, "average_outside_rows")] == lines_of("rcc-bigmnist.csv", "4:46:05")
    follows = [each.follows for each in result.findings if each.kind.startswith("average")]
    assert sorted(follows) == sorted(["15:20:10", "8:07:05", "5:00:08", "4:05:05", "8:35:58", "5:54:46", "4:19:46"])


def test_bigmnist_two_speedups_do_not_follow_from_the_printed_averages() -> None:
    """3.58 should be 3.61, 1.6 should be 1.79; the other five follow."""
    result = audits(PUBLISHED / "rcc-bigmnist.csv")[0]
    assert [(each.claimed, each.follows) for each in result.findings if each.kind == "speedup_wrong"] == [
        ("3.58", "3.61"),
        ("1.6", "1.79"),
    ]


def test_bigmnist_hardware() -> None:
    """V100, A40 and V100-SXM2 averaged in each of the 7 averages, and mixed in 8 runs on several nodes."""
    result = audits(PUBLISHED / "rcc-bigmnist.csv")[0]
    assert len(found(result, "gpu_types_pooled")) == 7
    mixed = {line for lines in found(result, "gpu_types_mixed_in_row") for line in lines}
    lists = ("gn[02,09]", "gn[04,08]", "gn[05,07]", "gn[01,04,08]", "gn[02,07,09]", "gn[01-02,07-08]")
    assert mixed == {line for name in lists for line in lines_of("rcc-bigmnist.csv", name)}


def test_bigmnist_steps_and_runs() -> None:
    """Steps one too many, 6.27 times with 4 GPUs, runs 1.84 times apart."""
    result = audits(PUBLISHED / "rcc-bigmnist.csv")[0]
    assert [(each.claimed, each.follows) for each in result.findings if each.kind == "steps_wrong"] == [
        ("140,626", "140,625"),
        ("70,314", "70,313"),
        ("46,876", "46,875"),
        ("35,158", "35,157"),
    ]
    assert [each.claimed for each in result.findings if each.kind == "superlinear"] == ["4.51", "6.27"]
    assert "1.84 times apart" in [each.follows for each in result.findings if each.kind == "runs_disagree"]


def test_mnist_has_one_fault() -> None:
    """625 steps should be 469; its seven speedups follow from the times."""
    result = audits(PUBLISHED / "rcc-mnist.csv")[0]
    assert [(each.kind, each.lines, each.follows) for each in result.findings] == [("steps_wrong", (3,), "469")]
    assert result.holds["speedup values"] == 7


def test_nyu_speedup_on_four_gpus() -> None:
    """0.35 at batch 32 on 4 GPUs: the times give 0.91."""
    result = audits(PUBLISHED / "nyu-q2-q3.csv")[0]
    (wrong,) = (each for each in result.findings if each.kind == "speedup_wrong")
    assert (wrong.lines, wrong.claimed, wrong.follows) == ((4,), "0.35", "0.91")


def test_nyu_two_tables_of_one_gpu_disagree() -> None:
    """Batch 512 on one GPU takes 2.4 s in one table and 9.8 s in the next: not the same model."""
    result = audits(PUBLISHED / "nyu-one-gpu.csv")[0]
    assert {each.kind for each in result.findings} == {"runs_disagree"}
    assert "4.13 times apart" in [each.follows for each in result.findings]


def test_marconi100_speedups_have_two_baselines() -> None:
    """1.80 within the node is against one GPU, 13.86 against one node: 24.9 against one GPU."""
    result = audits(PUBLISHED / "marconi100.csv")[0]
    assert [each.kind for each in result.findings] == ["baselines_mixed", "throughput_wrong"]
    (mixed,) = (each for each in result.findings if each.kind == "baselines_mixed")
    assert "13.86 at 16x4 is against 1 node; against 1 GPU it is 24.94" in mixed.sentence


def test_marconi100_throughput_is_of_twice_the_samples() -> None:
    """Label times epoch is 2.00 times ImageNet in all 8 rows."""
    result = audits(PUBLISHED / "marconi100.csv")[0]
    (wrong,) = (each for each in result.findings if each.kind == "throughput_wrong")
    assert len(wrong.lines) == 8
    assert "2.00 times the 1,281,167 samples" in wrong.sentence


def test_marconi100_efficiency_says_which_baseline_gives_it() -> None:
    """0.866 on 16 nodes is against one node; against one GPU it is 0.390."""
    result = audits(PUBLISHED / "marconi100-efficiency.csv")[0]
    (unnamed,) = result.findings
    assert unnamed.kind == "baseline_unnamed"
    assert unnamed.follows == "0.866 against 1 node, 0.390 against 1 GPU"


def test_sagemaker_times_have_nothing_to_contradict() -> None:
    """No claim, no finding: what its README says of them is not in the table."""
    assert audits(PUBLISHED / "sagemaker.csv")[0].findings == ()


FAULTS_OF_ORIGINALS = [
    ("ranks train apart: means of a step 9 % apart", "multinode-ddp", "ranks_disagree", (3, 4), "one time for all ranks"),
    ("speedup 0.35 is 0.91 by the times beside it", "nyu-q2-q3", "speedup_wrong", (4,), "0.91"),
    ("two tables of one GPU are of two networks", "nyu-one-gpu", "runs_disagree", (4, 8), "4.13 times apart"),
    ("2,048 on four GPUs is the run of 128 on one", "nyu-q4", "steps_wrong", (2,), "7"),
    ("labels are of twice ImageNet", "marconi100", "throughput_wrong", tuple(range(2, 10)), "370"),
    ("speedups in a node against a GPU, beyond it against a node", "marconi100", "baselines_mixed", (6, 7, 8, 9), "24.94"),
    ("86.6 % is against a node, 39.0 % against a GPU", "marconi100-efficiency", "baseline_unnamed", (6, 7, 8, 9), "0.390"),
    ("625 steps", "rcc-mnist", "steps_wrong", (3,), "469"),
    ("an average above each of its rows", "rcc-bigmnist", "average_outside_rows", (52, 53, 54, 55), "4:19:46"),
    ("averages of V100 and A40", "rcc-bigmnist", "gpu_types_pooled", tuple(range(2, 12)), "16:21:40 and 13:59:32"),
    ("6.27 times with four GPUs", "rcc-bigmnist", "superlinear", (9, 37), "at most 4"),
    ("steps one too many", "rcc-bigmnist", "steps_wrong", tuple(range(2, 11)), "140,625"),
    ("two A40 nodes 1.84 times apart", "rcc-bigmnist", "runs_disagree", (8, 9), "1.84 times apart"),
    ("V100 and A40 in one run", "rcc-bigmnist", "gpu_types_mixed_in_row", (45, 46), "A40-48 and V100-32"),
]
"""(what the study's page says, table, class, lines, what follows)"""


@pytest.mark.parametrize(("fault", "name", "kind", "lines", "follows"), FAULTS_OF_ORIGINALS)
def test_each_fault_that_the_pages_name_is_found(fault: str, name: str, kind: str, lines: tuple[int, ...], follows: str) -> None:
    """As far as a table can show it."""
    of_kind = [(each.lines, each.follows) for each in audits(PUBLISHED / f"{name}.csv")[0].findings if each.kind == kind]
    assert any(set(lines) <= set(found) and follows in right for found, right in of_kind), (fault, of_kind)
