"""Ranks that watch each other: who is to blame, what counts as progress, and what they say over a real connection."""

from __future__ import annotations

import dataclasses
import itertools
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.master import Store
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog import progress as progress_module
from hpcddp.worker.watchdog.detector import LastBeat, fault_by_beats, late_rank
from hpcddp.worker.watchdog.progress import (
    AFTER,
    BEFORE,
    HANG_S,
    LATE_S,
    LONGEST_S,
    TIMES_LONGEST,
    Beat,
    Connection,
    Failed,
    Goodbye,
    Hello,
    Hung,
    Message,
    Over,
    RankProgress,
    decode_message,
    encode_message,
    signs_of_life,
)
from hpcddp.worker.watchdog.protocol import Hub, Spoke

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
    waits = last_beat((17, 4), LONGEST_S)
    assert kind(waits, last_beat((17, 2), 0.0, still_s=LONGEST_S), waits) == ("hung", 1)
    assert kind(waits, waits, waits) == ("stuck", 0)


def test_ranks_at_one_place_are_not_told_apart() -> None:
    """All wait in the same exchange, and the network may be the cause. A single rank has nobody to wait for."""
    idle = last_beat((17, 4), HANG_S + 1)
    assert kind(idle, idle) is None
    assert kind(idle) == ("hung", 0)


def test_ranks_may_wait_for_one_that_is_not_watched() -> None:
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
    waited = Fault(kind="time_out", rank=0, host="gn01", sentence="rank 0 on gn01: waited")
    there, behind = last_beat((0, 3), stepping=False), LastBeat("gn02", last_beat(BEFORE, stepping=False).beat, NOW)
    late = late_rank(waited, {0: there, 1: there, 2: behind})
    assert (late.kind, late.rank, late.host) == ("late", 2, "gn02")
    words = "rank 2 on gn02 kept the other ranks waiting until their timeout, before its first step"
    assert late.sentence == f"{words}; rank 0 on gn01: waited"
    assert late_rank(waited, {0: there, 1: there}) is waited
    assert late_rank(waited, {0: behind, 1: there}) is waited
    assert late_rank(waited, {2: behind}) is waited
    lost = dataclasses.replace(waited, kind="contact")
    assert late_rank(lost, {0: there, 2: behind}) is lost


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
    for limit_s, patience_s in ((None, TIMES_LONGEST * 10), (7.0, 7.0)):
        progress, timer = watched(limit_s)
        timer.at = (4, 1, "data_wait")
        assert beats(progress, 0, 9).idle_s == 9
        timer.at = (4, 2, "forward")
        assert progress.beat(10.0).patience_s == patience_s


@pytest.mark.parametrize("sign", ["computes", "waits for a disk", "neither"])
def test_a_sign_of_life_is_no_progress_but_no_hanging_either(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
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
    progress, timer = watched()
    timer.at, timer.going = (20, 0, None), False
    beats(progress, 0, 100)
    timer.going = True
    assert progress.beat(101.0).idle_s == 0


@pytest.mark.usefixtures("idle")
def test_a_process_that_was_stopped_begins_anew() -> None:
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


BEAT = Beat(*BEFORE, None, False, 0.0, 0.0, 18.0)

FAULT = Fault(kind="error", rank=0, host="gn01", sentence="it failed")

FIRST = Rank(
    rank=0, local_rank=0, world=2, nodes=1, job="1", restart=0, host="gn01", master_addr="127.0.0.1", master_port=0
)  # fmt: skip


@pytest.fixture
def store() -> Store:
    store: Store = dist.HashStore()  # type: ignore[attr-defined]  # documented, but not in __all__
    return store


@pytest.fixture
def ranks(store: Store) -> Iterator[tuple[Hub, Spoke]]:
    hub = Hub(FIRST, store, lambda: None)
    spoke = Spoke(dataclasses.replace(FIRST, rank=1, local_rank=1), store, lambda: None)
    yield hub, spoke
    spoke.close()
    hub.close()


def blamed(ending: Any) -> tuple[str, int]:
    return ending.fault.kind, ending.fault.rank


def test_a_rank_may_leave_while_it_tells_a_beat(ranks: tuple[Hub, Spoke]) -> None:
    """Its thread tells beats and its main thread the goodbye: whichever comes last, its end is no fault."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    spoke.leave()
    spoke.tick(BEAT, 1.0, late=False)
    assert hub.receive(1.0) is None
    spoke.close()
    assert hub.receive(2.0) is None


def test_a_rank_that_ends_without_a_word_has_died(ranks: tuple[Hub, Spoke]) -> None:
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    spoke.close()
    assert blamed(hub.receive(1.0)) == ("died", 1)


def test_a_rank_may_die_while_rank_0_tells_what_failed(ranks: tuple[Hub, Spoke], monkeypatch: pytest.MonkeyPatch) -> None:
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    assert hub.receive(1.0) is None
    spoke.close()
    monkeypatch.setattr(Connection, "send", lambda connection, message: hub.receive(2.0))
    hub.report(FAULT)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b"7\n", b'{"Hello": 7}\n', b"[" * 20_000 + b"\n"])
def test_a_stranger_is_sent_away(ranks: tuple[Hub, Spoke], store: Store, said: bytes) -> None:
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    with socket.create_connection((FIRST.master_addr, int(store.get("hpcddp/watchdog").split()[0]))) as stranger:
        stranger.sendall(said)
        give_up_at = time.monotonic() + 60
        while not select.select([stranger], [], [], 0.01)[0]:
            assert hub.receive(1.0) is None
            assert time.monotonic() < give_up_at
    spoke.close()
    assert blamed(hub.receive(2.0)) == ("died", 1)


@pytest.mark.parametrize("message", [Hello("3fa9", 1, "gn02"), BEAT, Goodbye(), Failed(FAULT), Over(FAULT), Hung(FAULT)])
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


def test_a_connection_carries_messages_and_knows_its_end() -> None:
    left, right = socket.socketpair()
    here, there = Connection(left), Connection(right)
    here.send(BEAT)
    here.send(Goodbye())
    assert there.received() == [BEAT, Goodbye()]
    line = encode_message(Over(FAULT))
    left.send(line[:7])
    assert (there.received(), there.open) == ([], True)
    left.send(line[7:])
    here.close()
    assert (there.received(), there.open) == ([Over(FAULT)], False)
    there.send(Goodbye())
    there.close()


@pytest.mark.parametrize("which", [0, 1])
def test_a_job_that_was_suspended_goes_on(ranks: tuple[Hub, Spoke], which: int) -> None:
    """Who was stopped has heard nobody meanwhile: neither rank 0 nor the rank that watches it calls the other silent."""
    hub, spoke = ranks
    hub.tick(BEAT, 0.0, late=False)  # welcomes the other, and has nobody yet to tell its beat
    hub.tick(BEAT, 1.0, late=False)
    spoke.tick(BEAT, 1.0, late=False)
    hub.receive(1.0)
    assert ranks[which].tick(BEAT, 2 + LONGEST_S, late=True) is None
    assert blamed(ranks[which].tick(BEAT, 4 + 2 * LONGEST_S, late=False)) == ("silent", 1 - which)
