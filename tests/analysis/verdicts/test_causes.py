"""What holds a point back is judged from all of its runs, and from its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings, find
from tests.analysis.synthetic import MS, PASSED, Bucket, Recorded, point, write_run, write_study

EXPOSED = {"forward": 0.3, "backward": 0.48, "comm_exposed": 0.12, "optimizer": 0.1}
"""Of a step of 100 ms: communication is exposed from 78 to 90."""


def named(found: Findings, name: str) -> list[Verdict]:
    return [verdict for verdict in found.verdicts if verdict.name == name]


def exchanged(rank: int, late: bool) -> Bucket:
    """Ready at 40 ms, rank 1's at 88 where it is late; all-reduced at 90."""
    return Bucket(size_bytes=25_000_000, ready_ns=(88 if late and rank == 1 else 40) * MS, done_ns=90 * MS)


LATE = {**EXPOSED, "backward": 0.58, "comm_exposed": 0.02}
"""Of a rank that computes until 88."""


@pytest.mark.parametrize("shares", [EXPOSED, LATE])
@pytest.mark.parametrize(("last_runs", "is_cause"), [({1}, False), ({1, 3}, True)])
def test_a_straggler_in_one_run_of_three_holds_no_point_back(
    tmp_path: Path, last_runs: set[int], is_cause: bool, shares: dict[str, float]
) -> None:
    """As a verdict it is named all the same; but not where its step rows say that it computes no longer than the others."""
    is_cause = is_cause and shares is LATE
    one, two = point(1, 1), point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [one, two], repeat=3)
    for run in (1, 2, 3):
        write_run(study, one, Recorded(step_ns=50 * MS, steps=20), run)
        buckets = [lambda rank, late=run in last_runs: exchanged(rank, late)]
        late = {1: shares} if run in last_runs else {}
        write_run(study, two, Recorded(step_ns=100 * MS, steps=20, shares=EXPOSED, buckets=buckets, shares_of_rank=late), run)
    found = find(load_study(study))
    assert ("held back most by waiting for one slow rank or node" in found.sentences[0]) == is_cause
    found_in = [verdict.numbers["found_in_runs"] for verdict in named(found, "straggler")]
    assert found_in == ([len(last_runs)] if shares is LATE else [])


def test_exchanges_are_those_of_one_run(tmp_path: Path) -> None:
    """Ten of 40 kB, whether the point has runs with the hook under one label or, with a trace, under a second."""
    one, plain, traced = point(1, 1), point(1, 2, comm="on"), point(1, 2, comm="on", profile_steps=5)
    study = write_study(tmp_path / "s", [one, plain, traced])
    buckets = [Bucket(size_bytes=40_000, ready_ns=(30 + 5 * index) * MS, done_ns=90 * MS) for index in range(10)]
    for each in (one, plain, traced):
        recorded = Recorded(step_ns=100 * MS, steps=20, shares=EXPOSED, buckets=buckets if each is not one else ())
        write_run(study, each, recorded)
    (verdict,) = named(find(load_study(study)), "latency-bound")
    assert "is 10 exchanges of 39.1 KiB on average" in verdict.evidence


def test_gradients_that_travel_by_hand_are_for_ddp_to_send(tmp_path: Path) -> None:
    """Neither a hook nor another bucket helps there, and both would be refused."""
    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2, parallel="all_reduce")])
    for gpus in (1, 2):
        shares = {"forward": 0.3, "backward": 0.4, "comm_exposed": 0.3 if gpus > 1 else 0.0}
        each = point(1, gpus, **({"parallel": "all_reduce"} if gpus > 1 else {}))
        write_run(study, each, Recorded(step_ns=100 * MS, steps=20, shares=shares))
    (verdict,) = named(find(load_study(study)), "communication-bound")
    assert "--set workload.parallel=ddp" in verdict.advice


def test_limits_are_those_of_the_points_own_series(tmp_path: Path) -> None:
    """Two numbers of workers train equally fast; only with 4 does a resident batch train faster: only these wait for data."""
    points = {
        point(1, 1, loader_workers_per_rank=workers, input=given): step_ms
        for workers, given, step_ms in ((2, "full", 64), (2, "synthetic", 64), (4, "full", 64), (4, "synthetic", 30))
    }
    study = write_study(tmp_path / "s", list(points))
    for each, step_ms in points.items():
        write_run(study, each, Recorded(step_ns=step_ms * MS, steps=20, shares={"data_wait": 0.5, "forward": 0.5}))
    (verdict,) = named(find(load_study(study)), "input-bound")
    assert verdict.where == "at 1x1 (workers 4)"
    assert verdict.numbers["trainer"] == pytest.approx(32 / 0.03)


@pytest.mark.parametrize("backend", ["slurm", "local"])
def test_a_hot_gpu_is_kept_off_where_slurm_places_jobs(tmp_path: Path, backend: str) -> None:
    """Elsewhere there is no such option."""
    hot = [*PASSED, {"name": "GPU clocks held", "passed": False, "evidence": "GPU 1 of r000 fell"}]
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_run(study, point(1, 1), Recorded(step_ns=100 * MS, steps=20, gates=hot, launch={"backend": backend}))
    (verdict,) = named(find(load_study(study)), "clock throttling")
    assert ("slurm.exclude" in verdict.advice) == (backend == "slurm")
