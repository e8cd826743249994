"""Warm-up, stretches, pauses, the end of a run and the profile behind it, with real ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import gzip
import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data, Point
from hpcddp.core.records import AFTER_PAUSE, WARMUP, trace_file
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import LoaderFeed, make_feed
from hpcddp.worker.training.preemption import Action
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import make_trainer
from hpcddp.worker.training.window import StepWindow, collecting, timed_steps
from tests.worker import forked, given
from tests.worker.forked import ran
from tests.worker.test_resume import flags_of


def measured(ranks: int = 1, **changes: Any) -> Point:
    """Five warm-up and 20 timed steps, unless said otherwise."""
    return given.point(ranks, warmup=5, steps=20, measure=changes)


class Resumed:
    """Of a run whose first 12 steps an earlier attempt made."""

    first_step = 12

    def poll(self, steps: int) -> Action:
        return "continue"

    def write(self, steps: int, *, last: bool) -> None:
        """Nothing."""


def test_an_attempt_that_resumes_warms_up_again() -> None:
    group: Any = None
    window = StepWindow(measured(), EpochPlan(samples=1000, batch=8), [], group, Resumed())
    assert (window.first_step, window.timed_from) == (12, 17)


@pytest.mark.dear
def test_fixed_steps_have_one_pause(tmp_path: Path) -> None:
    found = ran(tmp_path, measured())
    assert flags_of(found, 0) == [WARMUP] * 4 + [WARMUP | AFTER_PAUSE] + [0] * 20
    protocol = found.end["protocol"]
    assert (protocol["stop"], protocol["stopped_by"], protocol["pauses"]) == ("steps", "steps", [4])
    assert (protocol["timed_steps"], protocol["warmup_steps"], protocol["steady_from_step"]) == (20, 5, 5)
    assert protocol["warmup_detected_steps"] is None  # 25 steps are too few to tell
    assert (protocol["warmup"], protocol["gc"], protocol["input"]) == ("fixed", "python", "full")
    assert (0 < protocol["effective_steps"] <= 20, protocol["interval_of"]) == (True, "mean")


@pytest.mark.dear
def test_all_ranks_stop_after_the_same_seconds(tmp_path: Path) -> None:
    found = ran(tmp_path, measured(2, stop="seconds", seconds=1.0, input="synthetic"))
    protocol, flags = found.end["protocol"], flags_of(found, 0)
    assert protocol["stopped_by"] == "seconds"
    assert found.end["steps"] == protocol["timed_steps"] + 5 == len(flags)
    assert flags == flags_of(found, 1)
    assert [step for step, flag in enumerate(flags) if flag & AFTER_PAUSE] == protocol["pauses"]
    assert sum(int(row["total_ns"]) for row in found.rows(0)[5:]) >= 1e9


@pytest.mark.dear
def test_a_narrow_interval_ends_a_run(tmp_path: Path) -> None:
    end = ran(tmp_path, measured(2, stop="interval", interval_percent=90.0)).end
    assert (end["protocol"]["stopped_by"], end["protocol"]["interval_percent"] <= 90) == ("interval", True)
    assert end["protocol"]["timed_steps"] >= 20
    assert len({rank["rows"] for rank in end["ranks"]}) == 1


@pytest.mark.dear
def test_the_limit_ends_a_run(tmp_path: Path) -> None:
    found = ran(tmp_path, measured(2, stop="interval", interval_percent=1e-4, max_steps=60, warmup="detect"))
    protocol = found.end["protocol"]
    assert (protocol["stopped_by"], protocol["timed_steps"]) == ("max_steps", 60)
    assert [rank["rows"] for rank in found.end["ranks"]] == [65, 65]
    assert protocol["pauses"][:2] == [4, 25]  # where steps take long there are more
    assert flags_of(found, 1)[:26] == [WARMUP] * 4 + [WARMUP | AFTER_PAUSE] + [0] * 20 + [AFTER_PAUSE]
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


def gc_enabled_in_steps(group: ProcessGroup, point: Point, folder: Path, fails_at: int) -> tuple[list[bool], bool]:
    source = given.mnist(200)
    feed = make_feed(point, source, group)
    assert isinstance(feed, LoaderFeed)
    feed.__class__ = Watched
    watched: Any = feed
    watched.enabled, watched.fails_at = [], fails_at
    trainer = make_trainer(point.workload, source, group.device, 0)
    with contextlib.suppress(RuntimeError):
        train(point, trainer, feed, StepLog(StepTimer(HostClock()), folder, 0, buckets=False), group)
    return watched.enabled, gc.isenabled()


@pytest.mark.dear
@pytest.mark.parametrize("fails_at", [10**9, 15])
def test_nothing_is_collected_in_the_timed_steps(tmp_path: Path, fails_at: int) -> None:
    point = measured(gc="off")
    ((enabled, afterwards),) = forked.in_group(tmp_path, 1, gc_enabled_in_steps, point, tmp_path / "records", fails_at)
    assert enabled == ([True] * 4 + [False] * 21)[:fails_at]
    assert afterwards is True


@pytest.mark.dear
def test_synthetic_input_needs_no_data(tmp_path: Path) -> None:
    what = measured(2, input="synthetic")
    nowhere = dataclasses.replace(what.workload, data=Data(name="mnist", root="/nowhere"), loader_workers_per_rank=2)
    found = ran(tmp_path, dataclasses.replace(what, workload=nowhere))
    row = found.rows(1)[20]
    assert (row["data_wait_ns"], row["h2d_exposed_ns"], int(row["forward_ns"]) > 0) == ("", "", True)
    assert found.end["loss_last"] < found.end["loss_first"]  # one batch over and over
    assert found.gates["every epoch reshuffled"]["evidence"].startswith("0 epoch(s) begun")


@pytest.mark.dear
def test_input_alone_trains_nothing(tmp_path: Path) -> None:
    found = ran(tmp_path, measured(2, input="io"))
    row = found.rows(1)[20]
    assert (row["forward_ns"], row["backward_ns"], row["optimizer_ns"], int(row["data_wait_ns"]) > 0) == ("", "", "", True)
    assert (found.end["loss_first"], found.end["loss_last"]) == (None, None)
    taken = found.gates["parameters agree"]["evidence"].partition("SHA-256 ")[2].split("; ")
    assert (len(taken), len({each.split()[-1] for each in taken})) == (3, 1)


Policy = Literal["python", "frozen", "off"]


class Loop:
    """What only the garbage collector can free."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Loop.freed += 1


def state() -> tuple[bool, int]:
    return gc.isenabled(), gc.get_freeze_count()


@pytest.mark.parametrize(("policy", "inside"), [("python", (True, False)), ("frozen", (True, True)), ("off", (False, False))])
def test_policies(policy: Policy, inside: tuple[bool, bool]) -> None:
    """frozen: today's objects are looked at no more. off: nothing is collected. An error ends them too."""
    gc.unfreeze()  # what the session has frozen
    gc.collect()
    before, freed = state(), Loop.freed
    Loop()
    with contextlib.suppress(ZeroDivisionError), collecting(policy):
        assert (gc.isenabled(), gc.get_freeze_count() > before[1]) == inside
        assert policy == "python" or Loop.freed == freed + 1
        raise ZeroDivisionError
    assert state() == before


def test_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with collecting("off"):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(("work", "steps"), [("steps", 4), ("epoch", 950)])
def test_an_epoch_is_one_pass_warm_up_included(work: str, steps: int) -> None:
    assert timed_steps(given.point(warmup=50, steps=4, work=work), given.plan(1000)) == steps


def test_an_epoch_must_outlast_its_warm_up() -> None:
    with pytest.raises(HpcddpError, match=r"an epoch has 50 steps of 4 samples, .*measure.warmup_steps is 50. Lower"):
        timed_steps(given.point(warmup=50, work="epoch"), given.plan(50))


@pytest.mark.dear
def test_a_profile_shows_each_step_and_its_all_reduces(tmp_path: Path) -> None:
    """Of three steps of the second rank, marked as Perfetto and HTA look for them; they are in no record."""
    found = ran(tmp_path, given.point(2, measure={"profile_steps": 3, "profile_ranks": (1,)}))
    with gzip.open(trace_file(found.attempt, 1), "rt", encoding="utf-8") as text:
        trace = json.load(text)
    names = [event["name"] for event in trace["traceEvents"]]
    assert len({name for name in names if name.startswith("ProfilerStep#")}) == 3
    assert names.count("gloo:all_reduce") == 6
    known = trace["distributedInfo"]
    assert (known["backend"], known["rank"], known["world_size"]) == ("gloo", 1, 2)
    files = sorted(file.name for file in (found.attempt / "ranks").iterdir())
    assert files == ["00000.steps.csv", "00001.steps.csv", "00001.trace.json.gz"]
    assert (found.failed, found.end["steps"], len(found.rows(0)), len(found.rows(1))) == ({}, 6, 6, 6)


class Strict(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(784, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert self.training == torch.is_grad_enabled()
        out: torch.Tensor = self.layer(images.flatten(1))
        return out


def test_what_is_evaluated_is_what_the_timed_steps_made(tmp_path: Path) -> None:
    """The profile's steps come after it, and train as the timed ones did."""
    data = Data(name="tests.worker.test_evaluate:tiny")
    known: dict[str, Any] = {"model": "tests.worker.test_window:Strict", "data": data, "evaluate": True}
    plain, profiled = (
        ran(tmp_path / f"{steps}", given.point(1, **known, measure={"profile_steps": steps, "profile_ranks": (0,)})).end
        for steps in (0, 3)
    )
    assert plain["evaluation"] == profiled["evaluation"]
    assert plain["flops_per_sample"] == profiled["flops_per_sample"] is not None
