"""How far a rank is, by times that the test gives; and what counts as a sign of life."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import Any

import pytest

from hpcddp.worker.watchdog import progress as progress_module
from hpcddp.worker.watchdog.progress import AFTER, LATE_S, TIMES_LONGEST, Beat, RankProgress, signs_of_life


class SetTimer:
    """A step timer at the position that a test sets."""

    going = True

    def __init__(self) -> None:
        self.at: tuple[int, int, str | None] = (0, 0, None)

    def position(self) -> tuple[int, int, str | None]:
        return self.at


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "signs_of_life", lambda _: (0.0, False))


def watched(limit_s: float | None = None) -> tuple[RankProgress, Any]:
    progress, timer = RankProgress(limit_s, 0.0), SetTimer()
    any_timer: Any = timer
    progress.watch_steps(any_timer)
    return progress, timer


def beats(progress: RankProgress, begin_s: int, end_s: int) -> Beat:
    for now_s in range(begin_s, end_s):
        progress.beat(float(now_s))
    return progress.beat(float(end_s))


@pytest.mark.usefixtures("idle")
def test_the_first_steps_take_what_they_take() -> None:
    """Kernels are chosen and buckets rebuilt: a rank counts as stepping from the third of its own steps on, resumed or not."""
    progress = RankProgress(None, 0.0)
    timer: Any = SetTimer()
    timer.at = (500, 0, None)
    progress.watch_steps(timer)
    assert [beats(progress, 0, 1).stepping, _at(progress, timer, 501), _at(progress, timer, 502)] == [False, False, True]
    timer.going = False
    assert not progress.beat(4.0).stepping  # a pause: checks, checkpoints
    progress.watch_steps(None)
    assert progress.beat(5.0).position == AFTER


def _at(progress: RankProgress, timer: SetTimer, step: int) -> bool:
    timer.at = (step, 0, None)
    return progress.beat(2.0).stepping


@pytest.mark.usefixtures("idle")
def test_patience_grows_with_the_longest_step() -> None:
    """After a step of 10 s, others may take 100; a limit that was set is the limit."""
    for limit_s, patience_s in ((None, TIMES_LONGEST * 10), (7.0, 7.0)):
        progress, timer = watched(limit_s)
        timer.at = (4, 1, "data_wait")
        assert beats(progress, 0, 9).idle_s == 9
        timer.at = (4, 2, "forward")
        assert progress.beat(10.0).patience_s == patience_s


@pytest.mark.parametrize("sign", ["computes", "waits for a disk", "neither"])
def test_a_sign_of_life_is_no_progress_but_no_hanging_either(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """A step may be slow: its rank is still for as long as it takes, and idle only where nothing is done for it."""
    seconds = itertools.count()
    signs = {
        "computes": lambda _: (0.5 * next(seconds), False),
        "waits for a disk": lambda _: (0.0, True),
        "neither": lambda _: (0.0, False),
    }
    monkeypatch.setattr(progress_module, "signs_of_life", signs[sign])
    progress, timer = watched()
    timer.at = (20, 0, None)
    found = beats(progress, 0, 100)
    assert (found.still_s, found.idle_s) == (100, 100 if sign == "neither" else 0)


@pytest.mark.usefixtures("idle")
def test_a_pause_does_not_count_as_standing_still() -> None:
    """The place is the same before and after it."""
    progress, timer = watched()
    timer.at, timer.going = (20, 0, None), False
    beats(progress, 0, 100)
    timer.going = True
    assert progress.beat(101.0).idle_s == 0


@pytest.mark.usefixtures("idle")
def test_a_process_that_was_stopped_begins_anew() -> None:
    """A suspended job that goes on has not hung."""
    progress, timer = watched()
    timer.at = (20, 0, None)
    beats(progress, 0, 10)
    assert (progress.beat(11 + LATE_S).idle_s, progress.late) == (0, True)
    assert (progress.beat(12 + LATE_S).idle_s, progress.late) == (1, False)


def test_computing_is_a_sign_of_life_and_sleeping_is_none() -> None:
    """Of this process and of its children, as a loader's are; the one that reads the node's counters would do so for ever."""
    before_s, _ = signs_of_life()
    others_s = before_s - time.process_time()  # children that other tests have
    child = _child_that_computes()
    try:
        deadline = time.monotonic() + 60
        while (found_s := signs_of_life()[0]) < before_s + 0.2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert found_s > time.process_time() + others_s + 0.1  # most of it is the child's
        assert signs_of_life(child)[0] < time.process_time() + others_s + 0.1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _child_that_computes() -> int:
    child = os.fork()
    if child:
        return child
    while True:
        pass
