"""Slow nodes: what preflight named, and which runs were there all the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hpcddp.analysis.report.node_tables import NODES_AT_MOST, preflight
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.preflight import PreflightRecord, slow_readings
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from tests.analysis.synthetic import MS, START_NS, Recorded, point, write_run, write_study
from tests.preflight_sets import clean, slowed

pytestmark = pytest.mark.usefixtures("undrawn")

SLOW = slowed(clean(1, nodes=8), "matrix_flops_per_s", 0.8, ["r001"])


def record(ranks: list, job: str = "90", unix_ns: int = START_NS - 1, **changes: object) -> PreflightRecord:  # type: ignore[type-arg]
    found = PreflightRecord(job=job, unix_ns=unix_ns, took_s=5.0, device="cuda", ranks=tuple(ranks), slow=slow_readings(ranks))
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def study_with(tmp_path: Path, *records: PreflightRecord, slow_rank: int | None = None) -> Study:
    """Two runs on r000 and one on r000 and r001, where a rank may need longer for its steps than the others."""
    points = [point(1, 2), point(2, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        late = {slow_rank: {"forward": 0.4, "backward": 0.5, "comm_exposed": 0.0}} if slow_rank is not None else {}
        shares = {"forward": 0.3, "backward": 0.5, "comm_exposed": 0.1}
        recorded = Recorded(
            step_ns=80 * MS,
            steps=40,
            shares=shares,
            shares_of_rank={rank: given for rank, given in late.items() if rank < each.ranks},
            launch={"started_unix_ns": START_NS, "backend": "slurm"},
        )
        write_run(study, each, recorded)
    for given in records:
        write_json(study.preflight_file(given.job, given.restart), encode(given))
    return study


def found(study: Study) -> Findings:
    return find(load_study(study))


def named(study: Study) -> list[Verdict]:
    return [verdict for verdict in found(study).verdicts if verdict.name == "slow node"]


def test_a_run_on_a_named_node_is_a_verdict(tmp_path: Path) -> None:
    """With the reading, the runs that were there, and how to stay off it."""
    (verdict,) = named(study_with(tmp_path, record(SLOW)))
    assert verdict.where == "on r001"
    assert verdict.evidence.startswith(
        "preflight found its matrix product 20 % below the median of 8 nodes, and 1 run that counts"
    )
    assert "`--set slurm.exclude=r001`" in verdict.advice
    assert verdict.runs == (f"r1 of {point(2, 2).label}",)


@pytest.mark.dear
def test_only_what_was_known_when_the_run_began(tmp_path: Path) -> None:
    """A later preflight says nothing of it, and the newest before it stands."""
    assert named(study_with(tmp_path / "later", record(SLOW, unix_ns=START_NS + 1))) == []
    cured = record(clean(1, nodes=8), job="91", unix_ns=START_NS - 1)
    assert named(study_with(tmp_path / "cured", record(SLOW, unix_ns=START_NS - 2), cured)) == []
    elsewhere = [dataclasses.replace(each, host=f"x{each.host}") for each in clean(1, nodes=8)]
    assert named(study_with(tmp_path / "others", record(SLOW, unix_ns=START_NS - 2), record(elsewhere, job="91")))


def test_a_node_that_no_run_used_is_none(tmp_path: Path) -> None:
    """It was left out; the note says so all the same."""
    ranks = slowed(clean(1, nodes=8), "matrix_flops_per_s", 0.8, ["r005"])
    result = found(study_with(tmp_path, record(ranks, excluded=("r005",))))
    assert [verdict for verdict in result.verdicts if verdict.name == "slow node"] == []
    assert "preflight of job 90: 8 nodes, slow: r005 (matrix product 20 % below the median; left out)" in result.notes


def test_a_straggler_is_said_once(tmp_path: Path) -> None:
    """Where the steps show that the others wait for that node."""
    study = study_with(tmp_path, record(SLOW), slow_rank=1)
    names = {verdict.name: verdict for verdict in found(study).verdicts}
    assert "r001" in names["straggler"].where
    assert "slow node" not in names


def test_a_damaged_record_is_a_warning(tmp_path: Path) -> None:
    """And stops nothing."""
    study = study_with(tmp_path, record(SLOW))
    study.preflight_file("91", 0).write_text('{"job": "91"}')
    result = found(study)
    assert any("preflight/91.0.json cannot be read" in note for note in result.notes)
    assert [verdict.where for verdict in result.verdicts if verdict.name == "slow node"] == ["on r001"]


def test_the_table_has_the_slow_nodes_first() -> None:
    """Of many nodes the first are shown, and how many are not."""
    table = preflight([record(slowed(clean(2, nodes=20), "neighbour_bytes_per_s", 0.7, ["r012"]), excluded=("r012",))])
    assert len(table.rows) == NODES_AT_MOST
    assert [cell.text for cell in table.rows[0]][::6] == ["r012", "all-reduce with a neighbour"]
    assert "4 more nodes are in its record" in table.note
    assert preflight([]).rows == []
