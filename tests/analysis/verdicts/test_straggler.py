"""Ranks and nodes that hold the others up: who, in which part, the cost, the advice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis.report.node_tables import NODES_AT_MOST, preflight
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.analysis.verdicts.straggler import culprit
from hpcddp.core.preflight import PreflightRecord, slow_readings
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from tests.analysis.synthetic import MS, START_NS, Bucket, Recorded, point, write_run, write_study
from tests.analysis.verdict_studies import Model, write
from tests.fake_node import clean, slowed

pytestmark = pytest.mark.usefixtures("undrawn")

STILL = Model(seed=0, layouts=[(1, 1), (1, 4)], repeat=2, steps=120, hook=False, noise=0.0, run_effect=0.0, base_ms=96.0)
SHARES = {"forward": 0.25, "backward": 0.45, "comm_exposed": 0.15}
LATE = {"forward": 0.25, "backward": 0.55, "comm_exposed": 0.05}
"""Of a rank that computes longer."""


def found_in(folder: Path, **changes: Any) -> tuple[Verdict, str]:
    """The only verdict on such a study, and the sentence."""
    found = find(load_study(write(dataclasses.replace(STILL, **changes), folder / "s")))
    (verdict,) = found.verdicts
    return verdict, found.sentences[0]


def test_a_slow_rank_is_told_by_its_own_time(tmp_path: Path) -> None:
    verdict, sentence = found_in(tmp_path, more=lambda each, rank, step: 0.1 * (rank == 2))
    assert verdict.where == "on rank 2 on r002"
    assert verdict.evidence.startswith("Rank 2 on r002 needs 10.0 ms per step more than the median rank of r1 of")
    assert "(9 % of the step). Most of that time is backward. The other ranks wait for it." in verdict.evidence
    assert verdict.advice.startswith("Compare that rank's GPU and cores")
    assert "The main limit is waiting for one slow rank or node." in sentence


def test_a_rank_whose_loader_is_slow_is_no_matter_of_its_gpu(tmp_path: Path) -> None:
    """It holds up three others for 96 ms of 196: without, twice as fast. It is not input-bound: the others hardly wait."""
    verdict, _ = found_in(tmp_path, more=lambda each, rank, step: 0.96 * (rank == 3), more_in="data_wait")
    assert verdict.name == "straggler"
    assert "Most of that time is waiting for its batch." in verdict.evidence
    assert "up to 96 % faster." in verdict.evidence
    assert verdict.advice.startswith("Compare how r003 reads the data")
    assert "measure.input=io" in verdict.advice


@pytest.mark.parametrize("backend", ["slurm", "hosts"])
def test_a_slow_node_is_left_out_in_the_words_of_its_backend(tmp_path: Path, backend: str) -> None:
    two = point(2, 1)
    study = write_study(tmp_path / "s", [two])
    slow = {1: LATE}
    write_run(study, two, Recorded(step_ns=100 * MS, steps=40, shares=SHARES, shares_of_rank=slow, launch={"backend": backend}))
    verdict = next(each for each in find(load_study(study)).verdicts if each.name == "straggler")
    assert verdict.where == "on rank 1 on r001"
    assert ("--set slurm.exclude=r001" in verdict.advice) == (backend == "slurm")
    assert "exclude r001" in verdict.advice or backend == "slurm"


def test_input_bound_tells_what_all_wait_for(tmp_path: Path) -> None:
    """Each rank's batch is late by 200 ms in one step of four, another one's each time: a quarter of that is the mean wait, but
    every step is as long as its longest."""
    verdict, _ = found_in(tmp_path, more=lambda each, rank, step: 2.0 * (step % 4 == rank), more_in="data_wait")
    assert verdict.name == "input-bound"
    assert verdict.numbers["faster_by"] == pytest.approx(2.0, rel=0.05)


def test_ranks_in_turn_are_no_matter_of_the_link(tmp_path: Path) -> None:
    verdict, sentence = found_in(tmp_path, more=lambda each, rank, step: 0.8 * (step % 4 == rank))
    assert (verdict.name, verdict.where) == ("uneven ranks", "at 1x4")
    assert verdict.evidence.startswith("Ranks wait for the slowest rank during 33 % of the step")
    assert "measure.gc=frozen" in verdict.advice
    assert "The main limit is ranks that wait for each other in turn." in sentence


def test_one_bad_run_of_three_is_no_straggler(tmp_path: Path) -> None:
    four = point(1, 4)
    study = write_study(tmp_path / "s", [four], repeat=3)
    for run in (1, 2, 3):
        slow = {1: LATE} if run == 2 else {}
        write_run(study, four, Recorded(step_ns=100 * MS, steps=40, shares=SHARES, shares_of_rank=slow), run)
    assert "straggler" not in [each.name for each in find(load_study(study)).verdicts]


@pytest.mark.parametrize("backward", [0.48, 0.58])
@pytest.mark.parametrize(("last_runs", "is_cause"), [({1}, False), ({1, 3}, True)])
def test_a_straggler_in_one_run_of_three_holds_no_point_back(
    tmp_path: Path, last_runs: set[int], is_cause: bool, backward: float
) -> None:
    """As a verdict it is named all the same; but not where its step rows say that it computes no longer than the others."""
    exposed = {"forward": 0.3, "backward": 0.48, "comm_exposed": 0.12, "optimizer": 0.1}
    slow = {**exposed, "backward": backward, "comm_exposed": 0.6 - backward}
    one, two = point(1, 1), point(1, 2, comm="on")

    def bucket(rank: int, late: bool) -> Bucket:
        return Bucket(size_bytes=25_000_000, ready_ns=(88 if late and rank == 1 else 40) * MS, done_ns=90 * MS)

    study = write_study(tmp_path / "s", [one, two], repeat=3)
    for run in (1, 2, 3):
        write_run(study, one, Recorded(step_ns=50 * MS, steps=20), run)
        buckets = [lambda rank, late=run in last_runs: bucket(rank, late)]
        late = {1: slow} if run in last_runs else {}
        write_run(study, two, Recorded(step_ns=100 * MS, steps=20, shares=exposed, buckets=buckets, shares_of_rank=late), run)
    found, computes = find(load_study(study)), slow != exposed
    assert ("The main limit is waiting for one slow rank or node." in found.sentences[0]) == (is_cause and computes)
    found_in_runs = [verdict.numbers["found_in_runs"] for verdict in found.verdicts if verdict.name == "straggler"]
    assert found_in_runs == ([len(last_runs)] if computes else [])


def ranks(hosts: str, last: list[float], peer_wait_s: list[float]) -> pd.DataFrame:
    """Ranks of one run as culprit sees them; a host per letter."""
    return pd.DataFrame({"rank": range(len(hosts)), "host": list(hosts), "last": last, "peer_wait_s": peer_wait_s})


RUN = Run(label="n02", run=1, state="counts", step_ns=1e8)


def test_a_slow_host_is_found_though_none_of_its_ranks_is_always_last() -> None:
    found = culprit(RUN, ranks("aabb", [0.02, 0.03, 0.5, 0.45], [0.01, 0.01, 0.001, 0.001]))
    assert found
    assert found.who == "b"
    assert (found.last, found.wait_s) == pytest.approx((0.95, 0.01))


def test_a_rank_that_is_always_last_by_little_is_no_straggler() -> None:
    """Someone is last: it must cost 2 % of the step."""
    assert culprit(RUN, ranks("aa", [0.0, 1.0], [0.0019, 0.0])) is None
    found = culprit(RUN, ranks("aa", [0.0, 1.0], [0.0021, 0.0]))
    assert found
    assert found.who == "rank 1 on a"
    assert culprit(RUN, ranks("a", [1.0], [0.0])) is None


SLOW = slowed(clean(1, nodes=8), "matrix_flops_per_s", 0.8, ["r001"])


def record(ranks: list, job: str = "90", unix_ns: int = START_NS - 1, **changes: object) -> PreflightRecord:  # type: ignore[type-arg]
    found = PreflightRecord(job=job, unix_ns=unix_ns, took_s=5.0, device="cuda", ranks=tuple(ranks), slow=slow_readings(ranks))
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def study_with(tmp_path: Path, *records: PreflightRecord, slow_rank: int | None = None) -> Study:
    """Two runs on r000 and one on r000 and r001, where a rank may need longer for its steps than the others."""
    points = [point(1, 2), point(2, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        recorded = Recorded(
            step_ns=80 * MS,
            steps=40,
            shares={"forward": 0.3, "backward": 0.5, "comm_exposed": 0.1},
            shares_of_rank={} if slow_rank is None else {slow_rank: {"forward": 0.4, "backward": 0.5, "comm_exposed": 0.0}},
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


def test_a_run_on_a_node_that_preflight_named_is_a_verdict(tmp_path: Path) -> None:
    (verdict,) = named(study_with(tmp_path, record(SLOW)))
    assert verdict.where == "on r001"
    assert verdict.evidence.startswith("Preflight found its matrix product 20 % below the median of 8 nodes. 1 included run")
    assert "`--set slurm.exclude=r001`" in verdict.advice
    assert verdict.runs == (f"r1 of {point(2, 2).label}",)


@pytest.mark.dear
def test_only_what_was_known_when_the_run_began(tmp_path: Path) -> None:
    assert named(study_with(tmp_path / "later", record(SLOW, unix_ns=START_NS + 1))) == []
    cured = record(clean(1, nodes=8), job="91", unix_ns=START_NS - 1)
    assert named(study_with(tmp_path / "cured", record(SLOW, unix_ns=START_NS - 2), cured)) == []
    elsewhere = [dataclasses.replace(each, host=f"x{each.host}") for each in clean(1, nodes=8)]
    assert named(study_with(tmp_path / "others", record(SLOW, unix_ns=START_NS - 2), record(elsewhere, job="91")))


def test_a_node_that_no_run_used_is_none(tmp_path: Path) -> None:
    ranks = slowed(clean(1, nodes=8), "matrix_flops_per_s", 0.8, ["r005"])
    result = found(study_with(tmp_path, record(ranks, excluded=("r005",))))
    assert [verdict for verdict in result.verdicts if verdict.name == "slow node"] == []
    assert "Preflight of job 90: 8 nodes, slow: r005 (matrix product 20 % below the median; left out)." in result.notes


def test_a_straggler_on_a_slow_node_is_said_once(tmp_path: Path) -> None:
    names = {verdict.name: verdict for verdict in found(study_with(tmp_path, record(SLOW), slow_rank=1)).verdicts}
    assert "r001" in names["straggler"].where
    assert "slow node" not in names


def test_a_damaged_record_is_a_warning(tmp_path: Path) -> None:
    study = study_with(tmp_path, record(SLOW))
    study.preflight_file("91", 0).write_text('{"job": "91"}')
    assert any("preflight/91.0.json cannot be read" in note for note in found(study).notes)
    assert [verdict.where for verdict in named(study)] == ["on r001"]


def test_the_table_has_the_slow_nodes_first() -> None:
    table = preflight([record(slowed(clean(2, nodes=20), "neighbour_bytes_per_s", 0.7, ["r012"]), excluded=("r012",))])
    assert len(table.rows) == NODES_AT_MOST
    assert [cell.text for cell in table.rows[0]][::6] == ["r012", "all-reduce with a neighbour"]
    assert "4 more nodes are in its record" in table.note
    assert preflight([]).rows == []
