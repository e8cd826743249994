"""Warm-up, stretches, pauses and the end of a run, with real ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Point
from hpcddp.core.records import AFTER_PAUSE, WARMUP
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import LoaderFeed, make_feed
from hpcddp.worker.training.preemption import Action
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import make_trainer
from hpcddp.worker.training.window import StepWindow
from tests.worker import forked, given
from tests.worker.test_run import rows

pytestmark = pytest.mark.dear


def measured(ranks: int = 1, **changes: Any) -> Point:
    """Five warm-up and 20 timed steps, unless said otherwise."""
    point = given.point(ranks, warmup=5, steps=20)
    return dataclasses.replace(point, measure=dataclasses.replace(point.measure, **changes))


def attempt_of(study: Path, point: Point) -> tuple[Path, dict[str, Any]]:
    """The attempt's folder and its end.json; every gate has passed."""
    spec = given.job(study, point)
    forked.values(study / "output", point.ranks, run, spec_to_dict(spec))
    attempt = spec.attempt_dir("7", 0)
    end: dict[str, Any] = json.loads((attempt / "end.json").read_text())
    assert [gate["name"] for gate in end["gates"] if not gate["passed"]] == []
    return attempt, end


def flags(attempt: Path, rank: int) -> list[int]:
    return [int(row["flags"]) for row in rows(attempt, rank)]


class Resumed:
    """Of a run whose first 12 steps an earlier attempt made."""

    first_step = 12

    def poll(self, steps: int) -> Action:
        return "continue"

    def write(self, steps: int, *, last: bool) -> None:
        """Nothing."""


def test_an_attempt_that_resumes_warms_up_again() -> None:
    """It times the steps that are left."""
    group: Any = None
    window = StepWindow(measured(), EpochPlan(samples=1000, batch=8), [], group, Resumed())
    assert (window.first_step, window.timed_from) == (12, 17)


def test_fixed_steps_have_one_pause(tmp_path: Path) -> None:
    """The checksum's, before the last warm-up step; the record says what the run was."""
    attempt, end = attempt_of(tmp_path, measured())
    assert flags(attempt, 0) == [WARMUP] * 4 + [WARMUP | AFTER_PAUSE] + [0] * 20
    protocol = end["protocol"]
    assert (protocol["stop"], protocol["stopped_by"], protocol["pauses"]) == ("steps", "steps", [4])
    assert (protocol["timed_steps"], protocol["warmup_steps"], protocol["steady_from_step"]) == (20, 5, 5)
    assert protocol["warmup_detected_steps"] is None  # 25 steps are too few to tell
    assert (protocol["warmup"], protocol["gc"], protocol["input"]) == ("fixed", "python", "full")
    assert 0 < protocol["effective_steps"] <= 20
    assert protocol["interval_of"] == "mean"


def test_all_ranks_stop_after_the_same_seconds(tmp_path: Path) -> None:
    """Rank 0's timed steps last as long as asked for; the steps after its pauses are flagged, on both ranks alike."""
    attempt, end = attempt_of(tmp_path, measured(2, stop="seconds", seconds=2.5))
    protocol = end["protocol"]
    assert protocol["stopped_by"] == "seconds"
    assert end["steps"] == protocol["timed_steps"] + 5 == len(flags(attempt, 0))
    assert flags(attempt, 0) == flags(attempt, 1)
    assert [step for step, flag in enumerate(flags(attempt, 0)) if flag & AFTER_PAUSE] == protocol["pauses"]
    assert sum(int(row["total_ns"]) for row in rows(attempt, 0)[5:]) >= 2.5e9


def test_a_narrow_interval_ends_a_run(tmp_path: Path) -> None:
    """+-90 % of the mean are soon known: some steps after the fewest there may be, on both ranks alike."""
    _, end = attempt_of(tmp_path, measured(2, stop="interval", interval_percent=90.0))
    assert end["protocol"]["stopped_by"] == "interval"
    assert end["protocol"]["interval_percent"] <= 90
    assert end["protocol"]["timed_steps"] >= 20
    assert len({rank["rows"] for rank in end["ranks"]}) == 1


def test_the_limit_ends_a_run(tmp_path: Path) -> None:
    """Nobody knows a mean to a millionth: both ranks stop at max_steps, and the reason is not the interval."""
    attempt, end = attempt_of(tmp_path, measured(2, stop="interval", interval_percent=1e-4, max_steps=120, warmup="detect"))
    protocol = end["protocol"]
    assert (protocol["stopped_by"], protocol["timed_steps"]) == ("max_steps", 120)
    assert [rank["rows"] for rank in end["ranks"]] == [125, 125]
    assert protocol["pauses"][:2] == [4, 25]  # where steps take long there are more
    assert flags(attempt, 1)[:26] == [WARMUP] * 4 + [WARMUP | AFTER_PAUSE] + [0] * 20 + [AFTER_PAUSE]
    detected = protocol["warmup_detected_steps"]  # None where others on the machine keep the steps from settling
    assert protocol["steady_from_step"] == max(5, detected or 0)


class Watched(LoaderFeed):
    """Notes for each step whether garbage is collected; fails when told to."""

    enabled: list[bool]
    fails_at = 10**9

    def next(self, timer: Any) -> Any:
        if len(self.enabled) == self.fails_at:
            raise RuntimeError("no more data")
        self.enabled.append(gc.isenabled())
        return super().next(timer)


def gc_enabled_in_steps(point: Point, folder: Path, fails_at: int) -> tuple[list[bool], bool]:
    group = join(this_rank("local"), "cpu")
    source = given.mnist(200)
    feed = make_feed(point, source, group)
    assert isinstance(feed, LoaderFeed)
    feed.__class__ = Watched
    watched: Any = feed
    watched.enabled, watched.fails_at = [], fails_at
    trainer = make_trainer(point.workload, source, group.device, 0)
    with contextlib.suppress(RuntimeError):
        train(point, trainer, feed, StepLog(StepTimer(HostClock()), folder, 0, buckets=False), group)
    group.leave()
    return watched.enabled, gc.isenabled()


@pytest.mark.parametrize("fails_at", [10**9, 15])
def test_nothing_is_collected_in_the_timed_steps(tmp_path: Path, fails_at: int) -> None:
    """From the last warm-up step on, when timing begins; afterwards it is as before, also after an error."""
    point = measured(gc="off")
    ((enabled, afterwards),) = forked.values(tmp_path, 1, gc_enabled_in_steps, point, tmp_path / "records", fails_at)
    assert enabled == ([True] * 4 + [False] * 21)[:fails_at]
    assert afterwards is True


def test_synthetic_input_needs_no_data(tmp_path: Path) -> None:
    """A data set that is nowhere: nothing is waited for, nothing copied, no epoch begun, and the model trains."""
    point = measured(2, input="synthetic")
    workload = dataclasses.replace(point.workload, data=Data(name="mnist", root="/nowhere"), loader_workers_per_rank=2)
    attempt, end = attempt_of(tmp_path, dataclasses.replace(point, workload=workload))
    row = rows(attempt, 1)[20]
    assert (row["data_wait_ns"], row["h2d_exposed_ns"]) == ("", "")
    assert int(row["forward_ns"]) > 0
    assert end["loss_last"] < end["loss_first"]  # one batch over and over
    assert any(gate["evidence"].startswith("0 epoch(s) begun") for gate in end["gates"])


def test_input_alone_trains_nothing(tmp_path: Path) -> None:
    """`io`: batches come and go; there is no loss, and the parameters are at the end what they were."""
    attempt, end = attempt_of(tmp_path, measured(2, input="io"))
    row = rows(attempt, 1)[20]
    assert (row["forward_ns"], row["backward_ns"], row["optimizer_ns"]) == ("", "", "")
    assert int(row["data_wait_ns"]) > 0
    assert (end["loss_first"], end["loss_last"]) == (None, None)
    (gate,) = [gate for gate in end["gates"] if gate["name"] == "parameters agree"]
    sums = [taken.split()[-1] for taken in gate["evidence"].partition("SHA-256 ")[2].split("; ")]
    assert len(sums) == 3
    assert len(set(sums)) == 1
