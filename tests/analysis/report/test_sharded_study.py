"""A study of DDP and sharded parameters: what is said of each is its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.report.terminal import to_plain
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.files import write_plain
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Fsdp, Point
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

WAITS = {"method": "hooks", "all_gather_forward_s": 0.02, "all_gather_backward_s": 0.015, "reduce_scatter_s": 0.005}
MARKED = {"forward": 0.2, "backward": 0.35, "comm_exposed": 0.4}
PLAIN = {"forward": 0.4, "backward": 0.55}


def of(parallel: str, nodes: int, comm: str = "off", **changes: Any) -> Point:
    return point(nodes, 4, parallel=parallel, comm=comm, **changes)


def found_of(folder: Path, runs: int = 3) -> Findings:
    """One and two full nodes; FSDP takes a third longer, and a fifth of the memory."""
    points = [of(parallel, nodes, comm) for parallel in ("ddp", "fsdp") for nodes in (1, 2) for comm in ("off", "on")]
    study = write_study(folder / "s", points)
    for each in points:
        sharded = each.sharded
        marked = each.measure.comm == "on"
        for run in range(1, runs + 1):
            recorded = Recorded(
                step_ns=(100 if sharded else 75) * MS + run * 10_000,
                steps=40,
                job=str(100 + run),
                shares=MARKED if marked or not sharded else PLAIN,
                of_rank={"peak_memory_bytes": {"allocated": 10**9 if sharded else 5 * 10**9, "reserved": 6 * 10**9}},
                end={"sharded_exchange": WAITS} if marked and sharded else {},
            )
            write_run(study, each, recorded, run)
    return find(load_study(study))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return found_of(tmp_path_factory.mktemp("sharded"))


@pytest.mark.dear
def test_what_ranks_wait_for(found: Findings) -> None:
    """A row for each point that was marked: the three waits in ms, and what they are of the step."""
    table = study_tables(found)["sharding"]
    assert "Measured by hooks." in table.note
    for row, nodes in zip(table.rows, ("1", "2"), strict=True):
        texts = [cell.text for cell in row]
        assert [texts[0], texts[2], *texts[4:]] == [nodes, "fsdp", "3", "100", "20.0", "15.0", "5.00", "40 %"]


@pytest.mark.dear
def test_memory_stands_beside_ddps(found: Findings) -> None:
    """In the table of what `parallel` changes."""
    (axis,) = (axis for axis in found.effects if axis.key == "workload.parallel")
    memory = {value.text: value.peak_memory_bytes for value in axis.panels[-1].values}
    assert memory["ddp"] is not None
    assert memory["fsdp"] is not None
    assert memory["ddp"] > memory["fsdp"]
    assert "memory of a rank: GB, at most" in [column.name for column in study_tables(found)[axis.stem].columns]


@pytest.mark.dear
def test_report_json_has_the_memory(found: Findings, tmp_path: Path) -> None:
    """As a plain number, which JSON can have."""
    write_plain(tmp_path / "report.json", to_plain(found, ()))
    assert '"peak_memory_bytes": 5000000000' in (tmp_path / "report.json").read_text()


@pytest.mark.dear
def test_advice_is_not_ddps(found: Findings) -> None:
    """Exposed communication of shards is cured by other means than buckets and compression."""
    (verdict,) = (each for each in found.verdicts if each.name == "communication-bound" and "fsdp" in each.where)
    assert not re.search(r"bucket|compression|gradients travelling|DDP", verdict.evidence + verdict.advice)
    assert "ddp" in verdict.advice, "the study has measured that DDP is faster"


def test_advice_that_nothing_was_measured_of(tmp_path: Path) -> None:
    """Within a node where there are several, once a step where it is twice, or more work."""
    wide = of("fsdp", 2, "on")
    for each, words in (
        (wide, ("parallel=hsdp", "reshard_after_forward=false", "more work between exchanges")),
        (of("hsdp", 2, "on", fsdp=Fsdp(reshard_after_forward=False)), ("more work between exchanges",)),
    ):
        study = write_study(tmp_path / each.id, [each])
        write_run(study, each, Recorded(step_ns=100 * MS, steps=40, shares=MARKED, end={"sharded_exchange": WAITS}))
        (verdict,) = (found for found in find(load_study(study)).verdicts if found.name == "communication-bound")
        assert all(word in verdict.advice for word in words)
        assert verdict.advice.count(";") == len(words) - 1


def test_waits_that_were_not_marked_are_not_computation(tmp_path: Path) -> None:
    """Long steps of a run without `comm: on`: forward and backward are longer, and why is not known."""
    each = of("fsdp", 2)
    study = write_study(tmp_path / "s", [each])
    for run in (1, 2, 3):
        recorded = Recorded(step_ns=lambda _, step: (100 if step % 5 else 300) * MS, steps=100, job=str(run), shares=PLAIN)
        write_run(study, each, recorded, run)
    verdicts = {verdict.name: verdict for verdict in find(load_study(study)).verdicts}
    assert "where waits for sharded parameters are not marked" in verdicts["stalls"].evidence
    assert verdicts["stalls"].advice.startswith("`--set measure.comm=on` marks what ranks wait for")
    assert "burst network" not in verdicts


@pytest.mark.parametrize(("failing", "words"), [("ddp", "call the model through DDP only"), ("fsdp", "after they are sharded")])
def test_advice_is_for_the_runs_that_fail(tmp_path: Path, failing: str, words: str) -> None:
    """Where DDP and sharded runs are compared, and parameters of one of them do not agree."""
    points = [of(parallel, 1) for parallel in ("ddp", "fsdp")]
    study = write_study(tmp_path / "s", points)
    for each in points:
        gate = {"name": "parameters agree", "passed": each.workload.parallel != failing, "evidence": "rank 1 differs"}
        write_run(study, each, Recorded(step_ns=100 * MS, steps=40, gates=[gate]))
    (verdict,) = (each for each in find(load_study(study)).verdicts if each.name == "unsynchronised ranks")
    assert words in verdict.advice
