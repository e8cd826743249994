"""Which rank is to blame, by beats and times that the test gives."""

from __future__ import annotations

import dataclasses

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.watchdog.detector import LastBeat, fault_by_beats, late_rank
from hpcddp.worker.watchdog.progress import AFTER, BEFORE, HANG_S, LONGEST_S, Beat

NOW = 1000.0


def last_beat(
    position: tuple[int, int], idle_s: float = 0.0, *, stepping: bool = True, silent_s: float = 0.0, still_s: float = 0.0
) -> LastBeat:
    beat = Beat(*position, "forward", stepping, max(idle_s, still_s), idle_s, HANG_S)
    return LastBeat("gn01", beat, NOW - silent_s)


def kind(*ranks: LastBeat) -> tuple[str, int] | None:
    fault = fault_by_beats(dict(enumerate(ranks)), len(ranks), NOW)
    return None if fault is None else (fault.kind, fault.rank)


def test_only_the_rank_behind_all_others_hangs() -> None:
    """The others are as idle: they wait for it in their all-reduce."""
    waits = last_beat((17, 4), HANG_S + 1)
    assert kind(waits, last_beat((17, 2), HANG_S + 1), waits) == ("hung", 1)
    assert kind(waits, last_beat((17, 2), HANG_S - 1), waits) is None


def test_ranks_that_wait_for_a_slow_one_do_not_hang() -> None:
    """The one behind computes, or is outside the steps: however long the others wait, nobody is to blame before LONGEST_S."""
    waits = last_beat((17, 4), LONGEST_S - 1)
    assert kind(waits, last_beat((17, 2), 0.0, still_s=LONGEST_S - 1), waits) is None
    assert kind(waits, last_beat((17, 0), LONGEST_S - 1, stepping=False), waits) is None
    assert kind(waits, last_beat(BEFORE, 2 * LONGEST_S, stepping=False), waits) is None


def test_no_rank_takes_longer_than_the_longest() -> None:
    """Also one that computes: before NCCL ends all processes without a word."""
    waits = last_beat((17, 4), LONGEST_S)
    assert kind(waits, last_beat((17, 2), 0.0, still_s=LONGEST_S), waits) == ("hung", 1)
    assert kind(waits, waits, waits) == ("stuck", 0)


def test_ranks_at_one_place_are_not_told_apart() -> None:
    """All wait in the same exchange, and the network may be the cause. A single rank has nobody to wait for."""
    idle = last_beat((17, 4), HANG_S + 1)
    assert kind(idle, idle) is None
    assert kind(idle) == ("hung", 0)


def test_ranks_may_wait_for_one_that_is_not_watched() -> None:
    """One that could not connect, say: nobody knows how far it is, so none of the others is to blame, wherever they wait."""
    waiting = {0: last_beat((17, 4), HANG_S + 1), 2: last_beat((17, 4), HANG_S + 1)}
    assert fault_by_beats(waiting, 3, NOW) is None
    assert fault_by_beats({**waiting, 2: last_beat((17, 2), HANG_S + 1)}, 3, NOW) is None
    stuck = fault_by_beats({rank: last_beat((17, 4), LONGEST_S) for rank in waiting}, 3, NOW)
    assert stuck is not None
    assert stuck.kind == "stuck"


def test_a_silent_rank_is_named_sooner_in_its_steps() -> None:
    """Elsewhere it may load something for long with Python's lock held."""
    there = last_beat((17, 4))
    assert kind(there, last_beat((17, 2), silent_s=HANG_S + 1)) == ("silent", 1)
    assert kind(there, last_beat((17, 2), silent_s=HANG_S - 1)) is None
    assert kind(there, last_beat(AFTER, stepping=False, silent_s=HANG_S + 1)) is None
    assert kind(there, last_beat(AFTER, stepping=False, silent_s=LONGEST_S + 1)) == ("silent", 1)


def test_a_time_out_is_the_fault_of_the_rank_that_did_not_come() -> None:
    """Who waited tells of it, be it in the first steps, where nobody hangs; ranks at one place are not told apart."""
    waited = Fault(kind="time_out", rank=0, host="gn01", sentence="rank 0 on gn01: waited")
    there, behind = last_beat((0, 3), stepping=False), LastBeat("gn02", last_beat(BEFORE, stepping=False).beat, NOW)
    late = late_rank(waited, {0: there, 1: there, 2: behind})
    assert (late.kind, late.rank, late.host) == ("late", 2, "gn02")
    words = "rank 2 on gn02 kept the others waiting until their time was over, when it was before its first step"
    assert late.sentence == f"{words}; rank 0 on gn01: waited"
    assert late_rank(waited, {0: there, 1: there}) is waited
    assert late_rank(waited, {0: behind, 1: there}) is waited
    assert late_rank(waited, {2: behind}) is waited
    lost = dataclasses.replace(waited, kind="contact")
    assert late_rank(lost, {0: there, 2: behind}) is lost
