"""The step clock, told what time it is: exact arithmetic, no clock and no GPU."""

from __future__ import annotations

from collections.abc import Iterable

from hpcddp.core.records import STEP_COLUMNS
from hpcddp.worker.timing.clock import PLACINGS, EventClock, HostClock
from hpcddp.worker.timing.steptimer import Row, StepTimer, TimedStep


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


def one_step(timer: StepTimer, stream: Stream, forward_ms: float, flags: int = 0) -> None:
    for part, work_ms in (("data_wait", 0.0), ("forward", forward_ms), ("backward", 2 * forward_ms), ("comm_exposed", 0.5)):
        stream.enqueue(work_ms)
        timer.mark(part)
    timer.close_step(flags)


def rows(steps: Iterable[TimedStep]) -> list[Row]:
    return [step.row for step in steps]


def cell(row: Row, column: str) -> int | None:
    return row[STEP_COLUMNS.index(column)]


def test_rows_come_when_the_device_is_done() -> None:
    """A step's row waits for the device, not the device for the row; rows keep their order."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    stream.waits = 0
    one_step(timer, stream, 1.0, flags=1)
    one_step(timer, stream, 2.0)
    assert list(timer.finished()) == []
    stream.now_ms = 3.5
    (first,) = rows(timer.finished())
    assert (cell(first, "step"), cell(first, "flags")) == (0, 1)
    assert stream.waits == 0
    assert [cell(row, "step") for row in rows(timer.drain())] == [1]
    assert stream.waits == 1


def test_parts_are_the_devices_time() -> None:
    """Each part in ns, what was not marked is empty, and the parts fill the total."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    one_step(timer, stream, 1.0)
    (row,) = rows(timer.drain())
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
    (row,) = rows(timer.drain())
    assert (cell(row, "forward_ns"), cell(row, "backward_ns")) == (4_000_000, 6_000_000)


def test_a_pause_within_a_step_is_of_no_step() -> None:
    """An evaluation among accumulated batches: neither the step's parts nor its total have it."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    stream.enqueue(1.0)
    timer.mark("forward")
    stream.enqueue(40.0)
    timer.resume()
    one_step(timer, stream, 1.0)
    (row,) = rows(timer.drain())
    assert (cell(row, "forward_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (2_000_000, 0, 4_500_000)


def test_of_a_copy_beside_the_step_before_the_rest_is_hidden() -> None:
    """5 ms of copying of which the compute stream waited for 2 leave 3; a copy that was waited for from its begin leaves none."""
    for waited_ms, hidden_ns in ((2.0, 3_000_000), (0.0, 5_000_000), (6.0, 0)):
        stream = Stream()
        timer = StepTimer(EventClock(stream.event))
        begin, end = timer.clock.stamp(), timer.clock.stamp()
        end.at_ms = begin.at_ms + 5.0
        stream.enqueue(waited_ms)
        timer.mark("h2d_exposed")
        timer.copied(begin, end)
        stream.enqueue(10.0)
        timer.mark("forward")
        timer.close_step(0)
        (row,) = rows(timer.drain())
        assert cell(row, "h2d_hidden_ns") == hidden_ns
        assert cell(row, "total_ns") == round((waited_ms + 10.0) * 1e6)


def test_steps_follow_each_other_without_a_gap() -> None:
    """What happens between two steps belongs to the later one; start_ns is the sum of what came before."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    one_step(timer, stream, 1.0)
    stream.enqueue(7.0)
    one_step(timer, stream, 1.0)
    first, second = rows(timer.drain())
    assert cell(second, "data_wait_ns") == 7_000_000
    assert (cell(second, "start_ns") or 0) - (cell(first, "start_ns") or 0) == 3_500_000


def paused_for_a_second() -> tuple[StepTimer, list[Row]]:
    """Two steps of 3.5 ms, and what the device did between them left out."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    one_step(timer, stream, 1.0)
    found = rows(timer.drain())
    stream.enqueue(1000.0)
    timer.restart()
    one_step(timer, stream, 1.0)
    return timer, found + rows(timer.drain())


def test_a_restart_leaves_out_what_was_done_meanwhile() -> None:
    """A check between two steps is nobody's time."""
    _, found = paused_for_a_second()
    assert [cell(row, "total_ns") for row in found] == [3_500_000, 3_500_000]
    assert [cell(row, "step") for row in found] == [0, 1]


def test_the_timeline_is_one_whatever_pace_it_keeps() -> None:
    """A device 1000 ms ahead of the host's clock: pauses last as long as it says, and clocks are compared by its time."""
    timer, found = paused_for_a_second()
    begun_ns = [cell(row, "start_ns") or 0 for row in found]
    assert begun_ns[1] - begun_ns[0] == 1_003_500_000
    ahead_ns = timer.unix_now()() - timer.clock.unix_now_ns()
    assert 900_000_000 < ahead_ns < 1_007_000_000


def test_on_the_host_both_clocks_are_one() -> None:
    """The clock that offsets between ranks are measured by is the steps' own, to the nanosecond."""
    clock = HostClock()
    timer = StepTimer(clock)
    timer.close_step(0)
    list(timer.drain())
    timer.restart()
    before, now, after = clock.unix_now_ns(), timer.unix_now()(), clock.unix_now_ns()
    assert before <= now <= after


def test_events_are_used_again() -> None:
    """A long run needs as many events as steps are under way, not as many as it has marks."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    for _ in range(100):
        one_step(timer, stream, 1.0)
        stream.now_ms = stream.queued_until_ms
        assert len(list(timer.finished())) == 1
    assert stream.events <= PLACINGS + 7


def test_the_hosts_clock_is_unix_time_at_a_steady_pace() -> None:
    """On a CPU a step's parts fill it exactly, whatever the time is."""
    timer = StepTimer(HostClock())
    timer.mark("data_wait")
    timer.mark("forward")
    timer.close_step(0)
    (row,) = rows(timer.finished())
    assert sum(cell(row, f"{part}_ns") or 0 for part in ("data_wait", "forward", "other")) == cell(row, "total_ns")
    assert (cell(row, "start_ns") or 0) > 1_700_000_000 * 10**9


def test_buckets_are_told_in_the_order_they_were_done() -> None:
    """gloo runs two at a time: the second to begin may be the first to end."""
    timer = StepTimer(HostClock())
    timer.restart()
    first, second = (timer.bucket(index, 8, timer.clock.stamp()) for index in range(2))
    second.done = timer.clock.stamp()
    first.done = timer.clock.stamp()
    timer.close_step(0)
    (step,) = timer.drain()
    assert [bucket[1] for bucket in step.buckets] == [1, 0]
