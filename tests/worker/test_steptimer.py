"""The step clock, told what time it is: exact arithmetic, no clock and no GPU."""

from __future__ import annotations

from typing import Any

from hpcddp.records import STEP_COLUMNS
from hpcddp.worker.steptimer import EventClock, HostClock, Row, StepTimer


class Stream:
    """A device that works through its queue while the host goes on: `now_ms` is how far it has come."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.queued_until_ms = 0.0
        self.events = 0
        self.waits = 0

    def event(self) -> Event:
        self.events += 1
        return Event(self)

    def enqueue(self, work_ms: float) -> None:
        self.queued_until_ms += work_ms


class Event:
    """As torch.cuda.Event: records the place in the queue, may be asked only once that is reached, and recorded again."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.at_ms = -1.0

    def record(self) -> None:
        self.at_ms = self._stream.queued_until_ms

    def query(self) -> bool:
        return self._stream.now_ms >= self.at_ms

    def synchronize(self) -> None:
        self._stream.waits += 1
        self._stream.now_ms = max(self._stream.now_ms, self.at_ms)

    def elapsed_time(self, later: Event) -> float:
        assert self.query(), "asked for an event that has not passed"
        assert later.query(), "asked for an event that has not passed"
        return later.at_ms - self.at_ms


def one_step(timer: StepTimer[Any], stream: Stream, forward_ms: float, flags: int = 0) -> None:
    for part, work_ms in (("data_wait", 0.0), ("forward", forward_ms), ("backward", 2 * forward_ms), ("comm_exposed", 0.5)):
        stream.enqueue(work_ms)
        timer.mark(part)
    timer.close_step(flags)


def cell(row: Row, column: str) -> int | None:
    return row[STEP_COLUMNS.index(column)]


def test_rows_come_when_the_device_is_done() -> None:
    """A step's row waits for the device, not the device for the row; rows keep their order."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    stream.waits = 0
    one_step(timer, stream, 1.0, flags=1)
    one_step(timer, stream, 2.0)
    assert list(timer.rows()) == []
    stream.now_ms = 3.5
    (first,) = timer.rows()
    assert (cell(first, "step"), cell(first, "flags")) == (0, 1)
    assert stream.waits == 0
    assert [cell(row, "step") for row in timer.drain()] == [1]
    assert stream.waits == 1


def test_parts_are_the_devices_time() -> None:
    """Each part in ns, what was not marked is empty, and the parts fill the total."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    one_step(timer, stream, 1.0)
    (row,) = timer.drain()
    assert (cell(row, "data_wait_ns"), cell(row, "forward_ns"), cell(row, "backward_ns")) == (0, 1_000_000, 2_000_000)
    assert (cell(row, "comm_exposed_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (500_000, 0, 3_500_000)
    assert (cell(row, "optimizer_ns"), cell(row, "h2d_hidden_ns")) == (None, None)


def test_a_part_may_come_several_times() -> None:
    """Micro-batches: their forward and backward times add up."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    for work_ms, part in ((1.0, "forward"), (2.0, "backward"), (3.0, "forward"), (4.0, "backward")):
        stream.enqueue(work_ms)
        timer.mark(part)
    timer.close_step(0)
    (row,) = timer.drain()
    assert (cell(row, "forward_ns"), cell(row, "backward_ns")) == (4_000_000, 6_000_000)


def test_steps_follow_each_other_without_a_gap() -> None:
    """What happens between two steps belongs to the later one; start_ns is the sum of what came before."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    one_step(timer, stream, 1.0)
    stream.enqueue(7.0)
    one_step(timer, stream, 1.0)
    first, second = timer.drain()
    assert cell(second, "data_wait_ns") == 7_000_000
    assert (cell(second, "start_ns") or 0) - (cell(first, "start_ns") or 0) == 3_500_000


def test_a_restart_leaves_out_what_was_done_meanwhile() -> None:
    """A check between two steps is nobody's time."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    one_step(timer, stream, 1.0)
    rows = list(timer.drain())
    stream.enqueue(1000.0)
    timer.restart()
    one_step(timer, stream, 1.0)
    rows += timer.drain()
    assert [cell(row, "total_ns") for row in rows] == [3_500_000, 3_500_000]
    assert [cell(row, "step") for row in rows] == [0, 1]


def test_events_are_used_again() -> None:
    """A long run needs as many events as steps are under way, not as many as it has marks."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    for _ in range(100):
        one_step(timer, stream, 1.0)
        stream.now_ms = stream.queued_until_ms
        assert len(list(timer.rows())) == 1
    assert stream.events <= 7


def test_the_hosts_clock_is_unix_time_at_a_steady_pace() -> None:
    """On a CPU a step's parts fill it exactly, whatever the time is."""
    timer = StepTimer(HostClock())
    timer.mark("data_wait")
    timer.mark("forward")
    timer.close_step(0)
    (row,) = timer.rows()
    assert sum(cell(row, f"{part}_ns") or 0 for part in ("data_wait", "forward", "other")) == cell(row, "total_ns")
    assert (cell(row, "start_ns") or 0) > 1_700_000_000 * 10**9
