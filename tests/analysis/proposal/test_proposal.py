"""The page of an application: each number by hand, the choice of a size, what is not known, what is escaped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from hpcddp.analysis.proposal.blocks import Block, Heading, Items, Picture, Text, text_table, to_latex, to_markdown
from hpcddp.analysis.proposal.page import PARALLEL, accuracy_blocks, drawings, page, unknown_lines, what_changes_it
from hpcddp.analysis.proposal.proposal import Proposal, propose
from hpcddp.analysis.report.table import Table
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data, Workload, point_to_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.study.test_accuracy import training, trainings
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_marconi100, write_run, write_study
from tests.analysis.verdict_studies import measured

SAMPLES = {"data": {"name": "synthetic-imagenet", "samples": 3_200_000}}


def nodes_study(folder: Path, steps_ms: dict[int, float], runs: int = 1) -> Study:
    """Full nodes of four GPUs with 32 samples each; an epoch of 3.2 M samples."""
    points = {point(nodes, 4): [ms + run for run in range(runs)] for nodes, ms in steps_ms.items()}
    return measured(folder, points, launch=SAMPLES)


def markdown(found: Proposal) -> str:
    return to_markdown(page(found))


@pytest.mark.dear
def test_marconi100s_numbers_are_those_of_its_thesis(tmp_path: Path) -> None:
    """16 nodes: 139 s per epoch, 90 of them 3:28:30 and 16 x 139 / 3600 x 90 = 55.6 node hours, four times as many GPU hours."""
    found = propose(write_marconi100(tmp_path / "m100"), epochs=90)
    assert found.choice is not None
    assert found.choice.size.vs_node is not None
    assert found.costs is not None
    assert found.choice.size.nodes == 16
    assert found.choice.size.vs_node.ratio == pytest.approx(1926 / 139 / 16)
    assert found.costs.epoch_s.value == pytest.approx(139, rel=1e-6)
    assert found.costs.node_h.value == pytest.approx(16 * 139 / 3600, rel=1e-6)
    text = markdown(found)
    assert "| time | 2:19 | 3:28:30 |\n| node hours | 0.618 | 55.6 |\n| GPU hours | 2.47 | 222 |\n" in text
    assert "16 nodes (64 GPUs) \\[8\\]: the largest measured size with at least 70 % efficiency" in text
    assert "| 2:19 | 0.618 | 3:28:30 | 55.6 | \\[8\\] |" in text


def test_the_sweep_may_say_how_long_a_training_is(tmp_path: Path) -> None:
    study = nodes_study(tmp_path / "s", {1: 100, 2: 125})
    assert propose(study).epochs is None
    described = json.loads(study.study_file.read_bytes())
    write_json(study.study_file, {**described, "sweep": {**described["sweep"], "train_epochs": 90}})
    assert "| one training (90 epochs) |" in markdown(propose(study)).replace("one epoch | ", "| ")
    assert propose(study, epochs=5).epochs == 5


def test_the_largest_efficient_size_is_chosen(tmp_path: Path) -> None:
    """Steps of 100, 125, 142, 160 ms at 1, 2, 4, 8 nodes: 80, 70.4, 62.5 % efficiency, so 4 nodes; the next is told."""
    found = propose(nodes_study(tmp_path / "s", {1: 100, 2: 125, 4: 142, 8: 160}))
    assert found.choice is not None
    assert found.choice.size.nodes == 4
    text = markdown(found)
    assert "4 nodes (16 GPUs) \\[3\\]: the largest measured size with at least 70 % efficiency." in text
    assert "The next larger size, 8 nodes, has an efficiency of 62 %." in text


def test_ends_of_an_efficiency_can_be_told_from_each_other(tmp_path: Path) -> None:
    study = measured(tmp_path / "s", {point(1, 4): [100, 100.2], point(2, 4): [110, 110.2]})
    assert "| 90.9 % (90.7 to 91.1 %) |" in markdown(propose(study))


def test_a_size_may_be_asked_for(tmp_path: Path) -> None:
    study = nodes_study(tmp_path / "s", {1: 100, 2: 125, 8: 160})
    assert "the requested size. Its efficiency against one node is 62 %." in markdown(propose(study, nodes=8))
    with pytest.raises(UsageError, match=r"no run on 4 full nodes passed all checks\. Measured: 1, 2, 8"):
        propose(study, nodes=4)


def test_without_one_node_no_size_is_chosen(tmp_path: Path) -> None:
    found = propose(nodes_study(tmp_path / "s", {2: 125, 8: 160}))
    assert (found.choice, found.costs) == (None, None)
    text = markdown(found)
    assert "No job size follows from the measurements" in text
    assert "Resources are unknown without a job size." in text
    assert "Efficiency against one node. No run of that baseline passed all checks." in text


def test_an_epoch_of_unknown_length_has_no_cost(tmp_path: Path) -> None:
    study = measured(tmp_path / "s", {point(1, 4, data=Data(name="mine:data")): [100]})
    text = markdown(propose(study, epochs=9))
    assert "Resources are unknown: the number of samples per epoch was not recorded." in text
    assert "node hours" not in text


def test_intervals_go_with_the_numbers(tmp_path: Path) -> None:
    """Three runs of 100, 101, 102 ms: 128 / 0.101 s with the range, and an epoch from 2500 to 2550 s."""
    found = propose(nodes_study(tmp_path / "s", {1: 100}, runs=3), epochs=2, trainings=3)
    assert found.costs is not None
    assert found.costs.epoch_s.low == pytest.approx(2500)
    assert found.costs.epoch_s.high == pytest.approx(2550)
    text = markdown(found)
    assert "| 1,267 (1,255 to 1,280) |" in text
    assert "Brackets hold the least and the most of any run." in text
    assert "| one training (2 epochs) |" in text
    assert "| 3 trainings |" in text
    assert "95 % intervals of sizes with fewer than six runs." in text


def test_every_row_is_linked_to_its_runs(tmp_path: Path) -> None:
    study = nodes_study(tmp_path / "s", {1: 100, 2: 110}, runs=2)
    write_run(study, point(2, 4), Recorded(step_ns=50 * MS, gates=FAILED, launch=SAMPLES), 3)
    blocks = page(propose(study))
    table = next(block for block in blocks if isinstance(block, Table))
    sources = [block for block in blocks if isinstance(block, Items)][-1].texts
    assert [row[-1].text for row in table.rows] == ["[1]", "[2]"]
    assert sources[0] == f"[1] {point(1, 4).label}: r1, r2; checks passed by each: 1 of 1"
    assert sources[1].startswith(f"[2] {point(2, 4).label}: r1, r2; checks passed by each: 1 of 1; rejected: r3 of ")
    assert "check `equal steps`" in sources[1]


def test_software_and_hardware_come_from_the_records(tmp_path: Path) -> None:
    text = markdown(propose(nodes_study(tmp_path / "s", {1: 100})))
    assert "- GPU: V100\n" in text
    assert "- software: torch 2.7.1" in text
    assert "- GPU driver: not recorded\n" in text


def test_other_series_are_counted_not_mixed(tmp_path: Path) -> None:
    study = nodes_study(tmp_path / "s", {1: 100, 2: 110})
    other = point(1, 4, batch_per_gpu=64)
    write_run(study, other, Recorded(step_ns=90 * MS))
    write_json(study.point_file(other.label), {"schema": 1, "id": other.id, "point": point_to_dict(other)})
    found = propose(study)
    assert (found.others, [size.nodes for size in found.sizes]) == (1, [1, 2])
    assert "This page is on batch/GPU 32. 1 more series of the study is not shown." in markdown(found)


def test_of_series_with_as_many_sizes_the_fastest_is_shown(tmp_path: Path) -> None:
    """Hours of a job follow from it: those of a setting that the study found to be slow serve nobody."""
    steps_ms = {point(1, 4, loader_workers_per_rank=workers): [ms] for workers, ms in ((1, 200), (4, 100), (8, 110))}
    found = propose(measured(tmp_path / "s", steps_ms))
    assert [size.row["samples_per_s"] for size in found.sizes] == [1280]
    assert "This page is on workers 4. 2 more series" in markdown(found)


def test_one_point_of_ddp_is_not_what_a_study_of_fsdp_is_about(tmp_path: Path) -> None:
    points = [point(1, 4), *(point(nodes, 4, parallel="fsdp") for nodes in (1, 2, 4))]
    found = propose(measured(tmp_path / "s", dict.fromkeys(points, (100,))))
    assert (found.others, [size.nodes for size in found.sizes]) == (1, [1, 2, 4])


def test_the_page_says_what_was_run(tmp_path: Path) -> None:
    """DataParallel by its name; where there is DDP too, which reaches several nodes, the page is about that and its kind."""
    one_process = [point(1, gpus, parallel="data_parallel", work="epoch") for gpus in (1, 2, 4)]
    text = markdown(propose(measured(tmp_path / "s", dict.fromkeys(one_process, (100,)))))
    assert "with PyTorch's DataParallel, one process for all GPUs" in text
    assert "Distributed" not in text
    both = [*one_process, *(point(1, gpus) for gpus in (1, 4))]
    text = markdown(propose(measured(tmp_path / "t", dict.fromkeys(both, (100,)))))
    assert "with PyTorch's DistributedDataParallel" in text
    assert "## Weak scaling (fixed batch per GPU)\n" in text
    assert "strong" not in text.lower()


def test_a_study_without_full_training_has_no_page(tmp_path: Path) -> None:
    study = measured(tmp_path / "s", {point(1, 4, input="io"): [100]})
    with pytest.raises(UsageError, match="no run of full training passed all checks"):
        propose(study)


HOSTILE = r"a_b 50% & $x$ #1 {c} \d ~e ^f [g] <script> | *h* --i"


def test_latex_is_inert(tmp_path: Path) -> None:
    blocks: list[Block] = [
        Heading(HOSTILE),
        Text(HOSTILE),
        Items(["[1] x", HOSTILE]),
        text_table([HOSTILE, "b"], [["1", HOSTILE]]),
        Picture("f", HOSTILE),
    ]
    text = to_latex(blocks)
    without = re.sub(r"\\[\\%&$#_{}]", "", text)
    assert without.count("{") == without.count("}")
    assert not re.search(r"[%$#_~^<>|]", without.replace("{f.pdf}", ""))
    assert "[1] x" not in text.replace("{}[1] x", "")
    assert "-{}-i" in text
    for name in ("itemize", "tabular", "figure"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}")


def test_markdown_is_inert(tmp_path: Path) -> None:
    text = to_markdown([Text("1. " + HOSTILE), Items(["- x"]), text_table(["a", "b"], [["1", HOSTILE]])])
    assert text.startswith("1\\. a\\_b")
    assert "- \\- x\n" in text
    assert "\\<script\\>" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 3


def test_figures_are_of_the_series_shown(tmp_path: Path) -> None:
    found = propose(nodes_study(tmp_path / "s", {1: 100, 2: 110}))
    assert sorted(drawings(found)) == ["efficiency", "scaling"]
    assert [block.name for block in page(found, ["scaling"]) if isinstance(block, Picture)] == ["scaling"]
    assert drawings(propose(nodes_study(tmp_path / "one", {1: 100}))) == {}


def gpus(*util: float, watts: float = 200.0) -> dict[str, Any]:
    """Telemetry of one node, 60 s of timed steps."""
    same = {"readings": 60, "power_w_mean": watts, "mem_used_peak_bytes": 12 * 10**9, "energy_j": 36e3}
    each = [{"gpu": n, "util_percent_mean": value, **same} for n, value in enumerate(util)]
    return {"host": "r000", "window_s": 60.0, "samples": 1000, "readings": 60, "gpus": each}


def used(folder: Path, *nodes: dict[str, Any], **changes: Any) -> str:
    """The page of a study of one node of four GPUs, or more nodes, with such telemetry."""
    what = point(len(nodes) or 1, 4, **changes)
    telemetry = {"hz": 1.0, "energy_j_per_1000_samples": 1800.0, "nodes": list(nodes)} if nodes else None
    write_run(write_study(folder, [what]), what, Recorded(step_ns=100 * MS, launch=SAMPLES, end={"telemetry": telemetry}))
    return markdown(propose(Study(folder), nodes=len(nodes) or 1))


def test_how_gpus_were_used(tmp_path: Path) -> None:
    """Utilisation, wait for data, memory, power, energy: 1.8 J a sample of 3.2 M are 1.6 kWh an epoch, 0.4 of each of 4 GPUs."""
    text = used(tmp_path / "s", gpus(90.0, 92.0, 94.0, 96.0))
    assert "## Use of the GPUs" in text
    assert "| 1 | 4 | 93 % | unknown | 12.0 | 200 | 0.400 | \\[1\\] |" in text
    assert "not used evenly" not in text


def test_uneven_gpus_are_told_by_rank(tmp_path: Path) -> None:
    """From ten points of utilisation on, of two nodes by rank; 36 kJ are 10 Wh."""
    text = used(tmp_path / "s", gpus(90.0, 92.0, 94.0, 96.0), {**gpus(90.0, 92.0, 61.0, 96.0), "host": "r001"})
    assert "The GPUs of \\[1\\] are not used evenly. The table shows its GPUs in r1 of" in text
    assert "| 6 | r001 | 61 % | 12.0 | 200 | 10.0 |" in text
    assert "| 0 | r000 | 90 % | 12.0 | 200 | 10.0 |" in text


def test_gpus_that_were_not_read_say_why(tmp_path: Path) -> None:
    text = used(tmp_path / "s", telemetry_hz=0.0)
    assert "| 1 | 4 | unknown | unknown | unknown | unknown | unknown | \\[1\\] |" in text
    assert "- \\[1\\] GPUs were not read: measure.telemetry\\_hz is 0." in text
    assert "Use of the GPUs" not in used(tmp_path / "cpu", device="cpu")


@pytest.mark.dear
def test_energy_of_nodes_and_co2_by_the_users_factor(tmp_path: Path) -> None:
    """9 kJ for 1000 samples are 8 kWh for 3.2 M; at 250 g that is 2 kg. Without nodes' energy it is of the GPUs' 1.6 kWh."""
    node = {**gpus(90.0, 92.0, 94.0, 96.0), "energy_j": 9000.0, "energy_from": "pm_counters"}
    text = used(tmp_path / "s", node)
    assert "| energy of the GPUs, kWh | 1.60 |" in text
    assert "| energy of the nodes with their GPUs, kWh (by pm\\_counters) | 8.00 |" in text
    assert "CO2" not in text
    text = markdown(propose(Study(tmp_path / "s"), co2_g_per_kwh=250))
    assert "| CO2 of the nodes' energy, kg, at 250 g per kWh | 2.00 |" in text
    without = used(tmp_path / "gpus", gpus(90.0, 92.0, 94.0, 96.0))
    assert "Energy of whole nodes. No source" in without
    text = markdown(propose(Study(tmp_path / "gpus"), co2_g_per_kwh=250))
    assert "| CO2 of the GPUs' energy, kg, at 250 g per kWh | 0.400 |" in text


def test_every_way_to_spread_a_model_has_its_words(tmp_path: Path) -> None:
    study = measured(tmp_path / "s", {point(1, 1, parallel="all_reduce"): [100]})
    assert "gradient all-reduced by hand after backward" in markdown(propose(study))
    assert set(PARALLEL) == set(get_args(get_type_hints(Workload)["parallel"]))


def rows(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_accuracy_and_what_it_takes(tmp_path: Path) -> None:
    given = {1: ((50, 90), 10.0), 4: ((50, 80, 95), 4.0)}
    study = trainings(tmp_path / "s", {training(gpus, target_accuracy=0.9): [each] * 2 for gpus, each in given.items()})
    found = propose(study)
    blocks = accuracy_blocks(found)
    counts, times = (block for block in blocks if isinstance(block, Table))
    assert rows(counts)[1] == ["1 x 4", "2", "95.00 % (950 of 1,000)", "95.00–95.00", "768"]
    assert rows(times) == [
        ["1 x 1", "2 of 2", "2", "20.0 s", "0.00556", "1.00", "1.00"],
        ["1 x 4", "2 of 2", "3", "12.0 s", "0.00333", "1.67", "10.0"],
    ]
    assert any(isinstance(block, Text) and "90.00 % accuracy takes 20.0 s" in block.text for block in blocks)
    assert not any("convergence was not measured" in line for line in unknown_lines(found))


def test_without_an_evaluation_there_is_no_such_block(tmp_path: Path) -> None:
    assert accuracy_blocks(propose(measured(tmp_path / "s", {point(1, 1): [1]}))) == []


@pytest.mark.parametrize("runs", [1, 3])
def test_keys_that_were_varied_have_a_sentence(tmp_path: Path, runs: int) -> None:
    times = {"fp32": 100, "bf16": 50}
    points = {point(1, 4, precision=name): [ms + run / 4 for run in range(runs)] for name, ms in times.items()}
    blocks = what_changes_it(propose(measured(tmp_path / "s", points)))
    if runs == 1:
        assert blocks == []
        return
    heading, items = blocks
    assert heading == Heading("Effect of each parameter")
    assert isinstance(items, Items)
    assert items.texts[0].startswith("At 1x4, precision bf16 is 2.00 times (95 % 1.98")
