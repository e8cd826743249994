"""Published tables, each judged by hand first: what is wrong is found, and what is right raises nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.audit.audit import Audit, audits

ORIGINALS = Path(__file__).parents[1] / "audits"
"""Of the studies of docs/studies, whose pages name the faults."""
PUBLISHED = ORIGINALS / "published"

FOUND: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
    # Ranks train apart: means of a step 9 % apart.
    "multinode-ddp": [("ranks_disagree", (3, 4), "one time for all ranks")],
    # Speedup 0.35 is 0.91 by the times beside it.
    "nyu-q2-q3": [("speedup_wrong", (4,), "0.91")],
    # Two tables of one GPU are of two networks.
    "nyu-one-gpu": [
        ("runs_disagree", (number, number + 4), f"{times} times apart") for number, times in ((2, 1.33), (3, 1.56), (4, 4.13))
    ],
    # 2,048 on four GPUs is the run of 128 on one.
    "nyu-q4": [("steps_wrong", (2,), "7")],
    # 1.80 within the node is against one GPU, 13.86 against one node; labels are of twice ImageNet.
    "marconi100": [("baselines_mixed", (6, 7, 8, 9), "24.94"), ("throughput_wrong", (2, 3, 4, 5, 6, 7, 8, 9), "370")],
    "marconi100-efficiency": [("baseline_unnamed", (5, 6, 7, 8, 9), "0.866 against 1 node, 0.390 against 1 GPU")],
    "rcc-mnist": [("steps_wrong", (3,), "469")],
    # `Tokens/sec` is of one GPU: its page says `14,796 tok/s/GPU` above the table.
    "torchtitan-deepep": [("rate_of_one_gpu", (4, 5, 6, 7, 8), "1773568 on all GPUs")],
    "mpi-sum": [("superlinear", (4,), "at most 2"), ("superlinear", (4,), "at most 1")],
    "diagonalization": [("baselines_mixed", (3,), "50 %"), ("superlinear", (3, 4), "at most 2")],
    # Times and rates contradict each other; by rates, two and four GPUs are above linear.
    "julia-python": [
        ("superlinear", (6, 7), "at most 2"),
        ("superlinear", (6, 8), "at most 4"),
        ("throughput_wrong", (3, 4, 5), "0.94"),
        ("throughput_wrong", (6, 7, 8), "2.28"),
    ],
    "python-code": [("batch_changed", (5, 6), "16 per GPU, or 16 in all")],
    "setups": [("superlinear", (line,), f"at most {most}") for line, most in ((5, 2), (6, 2), (7, 4), (8, 4))],
    "evaluation": [("superlinear", (6,), "at most 8")],
    # 39.06 / 10.02 is 3.90, not 3.91.
    "frames": [("speedup_wrong", (9,), "3.90 ×")],
    # 47,123 / 12,456 / 4 is 94.6 %, not 94.8; 91,567 / 12,456 / 8 is 91.9, not 91.7.
    "rdma": [("efficiency_wrong", (7,), "94.6 %"), ("efficiency_wrong", (8,), "91.9 %")],
    # 76,500 and 155,000 of 8,200 are 117 and 118 % on 8 and 16 times the GPUs.
    "polaris": [("superlinear", (3, 4), "at most 8"), ("superlinear", (3, 5), "at most 16")],
}
"""What is wrong: class, lines, what follows; nothing in those that are not named."""

TABLES = [path for path in (*ORIGINALS.glob("*.csv"), *PUBLISHED.iterdir()) if path.stem not in ("SOURCES", "rcc-bigmnist")]


@pytest.mark.parametrize("file", sorted(TABLES), ids=lambda path: path.stem)
def test_what_is_wrong_is_found_and_nothing_else(file: Path) -> None:
    """Every row that tells a size is read as it was printed."""
    (result,) = audits(file)
    assert [(each.kind, each.lines, each.follows) for each in result.findings] == FOUND.get(file.stem, [])
    if file.stem == "marconi100":
        assert "13.86 at 16x4 is against 1 node; against 1 GPU it is 24.94" in result.findings[0].sentence
        assert "2.00 times the 1,281,167 samples" in result.findings[1].sentence
    if file.stem == "rcc-mnist":
        assert result.holds["speedup values"] == 7


def test_every_table_names_its_source() -> None:
    """Repository, path and commit; those in Markdown and LaTeX in a table."""
    sources = (PUBLISHED / "SOURCES.md").read_text(encoding="utf-8")
    for path in PUBLISHED.iterdir():
        words = path.read_text(encoding="utf-8").splitlines()[0].split()
        is_named = words[0] == "#" and "/" in words[1] and len(words[-1].removeprefix("@")) == 40
        assert is_named if path.suffix == ".csv" else path.stem == "SOURCES" or f"| {path.stem} | " in sources


@pytest.fixture(scope="module")
def bigmnist() -> Audit:
    return audits(ORIGINALS / "rcc-bigmnist.csv")[0]


def lines_of(*cells: str) -> set[int]:
    """Lines of that table that hold one of these cells."""
    rows = (ORIGINALS / "rcc-bigmnist.csv").read_text(encoding="utf-8").splitlines()
    return {i + 1 for i, row in enumerate(rows) if any(cell in f",{row}," for cell in cells)}


def test_bigmnist_every_average_is_wrong(bigmnist: Audit) -> None:
    """All 7 printed averages differ from the mean of their rows; that of 4 nodes is above each of them."""
    wrong = [each for each in bigmnist.findings if each.kind.startswith("average")]
    assert {each.lines[-1] for each in wrong} == lines_of(",Avg,")
    follows = ["4:19:46", "15:20:10", "8:07:05", "5:00:08", "4:05:05", "8:35:58", "5:54:46"]
    assert [each.follows for each in wrong] == follows
    assert [(each.lines[0], {each.lines[-1]}) for each in wrong if each.kind == "average_outside_rows"] == [
        (51, lines_of("4:46:05"))
    ]


def test_bigmnist_other_faults(bigmnist: Audit) -> None:
    """V100, A40 and V100-SXM2 in each of the 7 averages, and in 8 runs on several nodes; steps one too many."""

    def claims(kind: str) -> list[tuple[str, str]]:
        return [(each.claimed, each.follows) for each in bigmnist.findings if each.kind == kind]

    assert claims("speedup_wrong") == [("3.58", "3.61"), ("1.6", "1.79")]
    steps = [("140,626", "140,625"), ("70,314", "70,313"), ("46,876", "46,875"), ("35,158", "35,157")]
    assert claims("steps_wrong") == steps
    assert [claimed for claimed, _ in claims("superlinear")] == ["4.51", "6.27"]
    assert "1.84 times apart" in [follows for _, follows in claims("runs_disagree")]
    assert len(claims("gpu_types_pooled")) == 7
    mixed = {line for each in bigmnist.findings if each.kind == "gpu_types_mixed_in_row" for line in each.lines}
    assert mixed == lines_of("gn[02,09]", "gn[04,08]", "gn[05,07]", "gn[01,04,08]", "gn[02,07,09]", "gn[01-02,07-08]")
