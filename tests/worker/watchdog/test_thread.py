"""Who is judged to hang, by a told clock; what counts as a sign of life; and that wires carry what is sent."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import socket
import time
from typing import Any

import pytest

from hpcddp.worker.faults import Fault
from hpcddp.worker.json_socket import Wire
from hpcddp.worker.watchdog import progress as pulse_module
from hpcddp.worker.watchdog.detector import LastBeat, judge, waited_for
from hpcddp.worker.watchdog.progress import AFTER, BEFORE, HANG_S, LATE_S, LONGEST_S, TIMES_LONGEST, Beat, Pulse, signs_of_life

NOW = 1000.0


class ToldTimer:
    """A step clock at a told place."""

    going = True

    def __init__(self) -> None:
        self.at: tuple[int, int, str | None] = (0, 0, None)

    def position(self) -> tuple[int, int, str | None]:
        return self.at


def seen(
    position: tuple[int, int], idle_s: float = 0.0, *, stepping: bool = True, silent_s: float = 0.0, still_s: float = 0.0
) -> LastBeat:
    beat = Beat(position, "forward", stepping, max(idle_s, still_s), idle_s, HANG_S)
    return LastBeat("gn01", beat, NOW - silent_s)


def kind(*ranks: LastBeat) -> tuple[str, int] | None:
    fault = judge(dict(enumerate(ranks)), len(ranks), NOW)
    return None if fault is None else (fault.kind, fault.rank)


def test_only_the_rank_behind_all_others_hangs() -> None:
    """The others are as idle: they wait for it in their all-reduce."""
    waits = seen((17, 4), HANG_S + 1)
    assert kind(waits, seen((17, 2), HANG_S + 1), waits) == ("hung", 1)
    assert kind(waits, seen((17, 2), HANG_S - 1), waits) is None


def test_ranks_that_wait_for_a_slow_one_do_not_hang() -> None:
    """The one behind computes, or is outside the steps: however long the others wait, nobody is to blame before LONGEST_S."""
    waits = seen((17, 4), LONGEST_S - 1)
    assert kind(waits, seen((17, 2), 0.0, still_s=LONGEST_S - 1), waits) is None
    assert kind(waits, seen((17, 0), LONGEST_S - 1, stepping=False), waits) is None
    assert kind(waits, seen(BEFORE, 2 * LONGEST_S, stepping=False), waits) is None


def test_no_rank_takes_longer_than_the_longest() -> None:
    """Also one that computes: before NCCL ends all processes without a word."""
    waits = seen((17, 4), LONGEST_S)
    assert kind(waits, seen((17, 2), 0.0, still_s=LONGEST_S), waits) == ("hung", 1)
    assert kind(waits, waits, waits) == ("stuck", 0)


def test_ranks_at_one_place_are_not_told_apart() -> None:
    """All wait in the same exchange, and the network may be the cause. A single rank has nobody to wait for."""
    idle = seen((17, 4), HANG_S + 1)
    assert kind(idle, idle) is None
    assert kind(idle) == ("hung", 0)


def test_ranks_may_wait_for_one_that_is_not_watched() -> None:
    """One that could not connect, say: nobody knows how far it is, so none of the others is to blame, wherever they wait."""
    waiting = {0: seen((17, 4), HANG_S + 1), 2: seen((17, 4), HANG_S + 1)}
    assert judge(waiting, 3, NOW) is None
    assert judge({**waiting, 2: seen((17, 2), HANG_S + 1)}, 3, NOW) is None
    stuck = judge({rank: seen((17, 4), LONGEST_S) for rank in waiting}, 3, NOW)
    assert stuck is not None
    assert stuck.kind == "stuck"


def test_a_silent_rank_is_named_sooner_in_its_steps() -> None:
    """Elsewhere it may load something for long with Python's lock held."""
    there = seen((17, 4))
    assert kind(there, seen((17, 2), silent_s=HANG_S + 1)) == ("silent", 1)
    assert kind(there, seen((17, 2), silent_s=HANG_S - 1)) is None
    assert kind(there, seen(AFTER, stepping=False, silent_s=HANG_S + 1)) is None
    assert kind(there, seen(AFTER, stepping=False, silent_s=LONGEST_S + 1)) == ("silent", 1)


def test_a_time_out_is_the_fault_of_the_rank_that_did_not_come() -> None:
    """Who waited tells of it, be it in the first steps, where nobody hangs; ranks at one place are not told apart."""
    waited = Fault(kind="time_out", rank=0, host="gn01", sentence="rank 0 on gn01: waited")
    there, behind = seen((0, 3), stepping=False), LastBeat("gn02", seen(BEFORE, stepping=False).beat, NOW)
    late = waited_for(waited, {0: there, 1: there, 2: behind})
    assert (late.kind, late.rank, late.host) == ("late", 2, "gn02")
    words = "rank 2 on gn02 kept the others waiting until their time was over, when it was before its first step"
    assert late.sentence == f"{words}; rank 0 on gn01: waited"
    assert waited_for(waited, {0: there, 1: there}) is waited
    assert waited_for(waited, {0: behind, 1: there}) is waited
    assert waited_for(waited, {2: behind}) is waited
    lost = dataclasses.replace(waited, kind="contact")
    assert waited_for(lost, {0: there, 2: behind}) is lost


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "signs_of_life", lambda _: (0.0, False))


def watched(limit_s: float | None = None) -> tuple[Pulse, Any]:
    pulse, timer = Pulse(limit_s, 0.0), ToldTimer()
    told: Any = timer
    pulse.watch(told)
    return pulse, timer


def beats(pulse: Pulse, begin_s: int, end_s: int) -> Beat:
    for now_s in range(begin_s, end_s):
        pulse.beat(float(now_s))
    return pulse.beat(float(end_s))


@pytest.mark.usefixtures("idle")
def test_the_first_steps_take_what_they_take() -> None:
    """Kernels are chosen and buckets rebuilt: a rank counts as stepping from the third of its own steps on, resumed or not."""
    pulse = Pulse(None, 0.0)
    timer: Any = ToldTimer()
    timer.at = (500, 0, None)
    pulse.watch(timer)
    assert [beats(pulse, 0, 1).stepping, _at(pulse, timer, 501), _at(pulse, timer, 502)] == [False, False, True]
    timer.going = False
    assert not pulse.beat(4.0).stepping  # a pause: checks, checkpoints
    pulse.watch(None)
    assert pulse.beat(5.0).position == AFTER


def _at(pulse: Pulse, timer: ToldTimer, step: int) -> bool:
    timer.at = (step, 0, None)
    return pulse.beat(2.0).stepping


@pytest.mark.usefixtures("idle")
def test_patience_grows_with_the_longest_step() -> None:
    """After a step of 10 s, others may take 100; a limit that was set is the limit."""
    for limit_s, patience_s in ((None, TIMES_LONGEST * 10), (7.0, 7.0)):
        pulse, timer = watched(limit_s)
        timer.at = (4, 1, "data_wait")
        assert beats(pulse, 0, 9).idle_s == 9
        timer.at = (4, 2, "forward")
        assert pulse.beat(10.0).patience_s == patience_s


@pytest.mark.parametrize("sign", ["computes", "waits for a disk", "neither"])
def test_a_sign_of_life_is_no_progress_but_no_hanging_either(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """A step may be slow: its rank is still for as long as it takes, and idle only where nothing is done for it."""
    seconds = itertools.count()
    signs = {
        "computes": lambda _: (0.5 * next(seconds), False),
        "waits for a disk": lambda _: (0.0, True),
        "neither": lambda _: (0.0, False),
    }
    monkeypatch.setattr(pulse_module, "signs_of_life", signs[sign])
    pulse, timer = watched()
    timer.at = (20, 0, None)
    found = beats(pulse, 0, 100)
    assert (found.still_s, found.idle_s) == (100, 100 if sign == "neither" else 0)


@pytest.mark.usefixtures("idle")
def test_a_pause_does_not_count_as_standing_still() -> None:
    """The place is the same before and after it."""
    pulse, timer = watched()
    timer.at, timer.going = (20, 0, None), False
    beats(pulse, 0, 100)
    timer.going = True
    assert pulse.beat(101.0).idle_s == 0


@pytest.mark.usefixtures("idle")
def test_a_process_that_was_stopped_begins_anew() -> None:
    """A suspended job that goes on has not hung."""
    pulse, timer = watched()
    timer.at = (20, 0, None)
    beats(pulse, 0, 10)
    assert (pulse.beat(11 + LATE_S).idle_s, pulse.late) == (0, True)
    assert (pulse.beat(12 + LATE_S).idle_s, pulse.late) == (1, False)


def test_computing_is_a_sign_of_life_and_sleeping_is_none() -> None:
    """Of this process and of its children, as a loader's are; the one that reads the node's counters would do so for ever."""
    before_s, _ = signs_of_life()
    child = _child_that_computes()
    try:
        deadline = time.monotonic() + 60
        while (found_s := signs_of_life()[0]) < before_s + 0.2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert found_s > time.process_time() + 0.1  # most of it is the child's
        assert signs_of_life(child)[0] < time.process_time() + 0.1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _child_that_computes() -> int:
    child = os.fork()
    if child:
        return child
    while True:
        pass


def test_a_wire_carries_lines_and_knows_its_end() -> None:
    """Values arrive whole and in order; a broken line is kept until the rest comes; the end of the other side is seen."""
    left, right = socket.socketpair()
    here, there = Wire(left), Wire(right)
    here.send({"beat": [1]})
    here.send({"bye": True})
    assert there.received() == [{"beat": [1]}, {"bye": True}]
    left.send(b'{"be')
    assert (there.received(), there.open) == ([], True)
    left.send(b'at": 2}\n')
    here.close()
    assert (there.received(), there.open) == ([{"beat": 2}], False)
    there.send({"lost": 1})
    there.close()
