"""The step clock: every part of a step lies between two marks on one timeline, and the steps follow each other without a gap.

On a CPU the marks are readings of the host's clock. On CUDA they are events in the compute stream, read only when they have
passed, so that timing adds no synchronisation: a part is the time the GPU spent on it, or waited for the host to ask for it.
Reading a clock costs about 0.05 us, recording an event a few.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from hpcddp.records import PARTS, STEP_COLUMNS

Stamp = TypeVar("Stamp")
Row = tuple[int | None, ...]


class Clock(Protocol[Stamp]):
    """A timeline."""

    def anchor(self) -> tuple[Stamp, int]:
        """A first stamp once all earlier work is done, and the Unix time of it in ns."""
        ...

    def stamp(self) -> Stamp:
        """The present place on the timeline."""
        ...

    def passed(self, stamp: Stamp) -> bool:
        """Whether the timeline has reached `stamp`, without waiting for it."""
        ...

    def between_ns(self, earlier: Stamp, later: Stamp) -> int: ...

    def wait(self, stamp: Stamp) -> None:
        """Returns once the timeline has reached `stamp`."""
        ...

    def free(self, stamp: Stamp) -> None:
        """`stamp` is not needed any more."""
        ...


class HostClock:
    """perf_counter, placed in Unix time once: it neither jumps nor is steered while a run lasts."""

    def __init__(self) -> None:
        self._unix_offset_ns = time.time_ns() - time.perf_counter_ns()

    def anchor(self) -> tuple[int, int]:
        now = time.perf_counter_ns()
        return now, now + self._unix_offset_ns

    def stamp(self) -> int:
        return time.perf_counter_ns()

    def passed(self, stamp: int) -> bool:
        return True

    def between_ns(self, earlier: int, later: int) -> int:
        return later - earlier

    def wait(self, stamp: int) -> None: ...

    def free(self, stamp: int) -> None: ...


class EventClock:
    """Events in the current stream; `new_event` makes one that has record, query, synchronize and elapsed_time (ms)."""

    def __init__(self, new_event: Callable[[], Any]) -> None:
        self._new_event = new_event
        self._spare: list[Any] = []

    def anchor(self) -> tuple[Any, int]:
        event = self.stamp()
        event.synchronize()
        return event, time.time_ns()

    def stamp(self) -> Any:
        event = self._spare.pop() if self._spare else self._new_event()
        event.record()
        return event

    def passed(self, stamp: Any) -> bool:
        return bool(stamp.query())

    def between_ns(self, earlier: Any, later: Any) -> int:
        elapsed_ms: float = earlier.elapsed_time(later)
        return round(elapsed_ms * 1e6)

    def wait(self, stamp: Any) -> None:
        stamp.synchronize()

    def free(self, stamp: Any) -> None:
        self._spare.append(stamp)


def clock_for(device_type: str) -> Clock[Any]:
    """The compute stream's events on `cuda`, the host's clock otherwise."""
    if device_type != "cuda":
        return HostClock()
    import torch

    return EventClock(lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]


class StepTimer(Generic[Stamp]):
    """Collects the marks of steps and turns them into rows of STEP_COLUMNS, in order, once their time has passed."""

    def __init__(self, clock: Clock[Stamp]) -> None:
        self._clock = clock
        self._marks: list[tuple[str, Stamp]] = []
        self._closed: deque[tuple[int, int, list[tuple[str, Stamp]]]] = deque()
        self._step = 0
        self._last, self._start_unix_ns = clock.anchor()

    def mark(self, part: str) -> None:
        """What lies between the last mark and this one was `part`; a part may come several times in a step."""
        self._marks.append((part, self._clock.stamp()))

    def close_step(self, flags: int) -> None:
        """Ends the step; the rest of it since the last mark was `other`."""
        self.mark("other")
        self._closed.append((self._step, flags, self._marks))
        self._marks = []
        self._step += 1

    def rows(self) -> Iterator[Row]:
        """The rows whose last mark has passed; never waits."""
        while self._closed and self._clock.passed(self._closed[0][2][-1][1]):
            yield self._row(*self._closed.popleft())

    def drain(self) -> Iterator[Row]:
        """The rows of all closed steps; waits for them."""
        if self._closed:
            self._clock.wait(self._closed[-1][2][-1][1])
        yield from self.rows()

    def restart(self) -> None:
        """Leaves out what was done since the last step closed; its rows must have been drained."""
        self._clock.free(self._last)
        self._last, self._start_unix_ns = self._clock.anchor()

    def _row(self, step: int, flags: int, marks: list[tuple[str, Stamp]]) -> Row:
        first, previous = self._last, self._last
        cells: dict[str, int] = {}
        for part, stamp in marks:
            cells[part] = cells.get(part, 0) + self._clock.between_ns(previous, stamp)
            previous = stamp
        total_ns = self._clock.between_ns(first, previous)
        known = {f"{part}_ns": cells.get(part) for part in PARTS}
        known |= {"step": step, "flags": flags, "start_ns": self._start_unix_ns, "total_ns": total_ns}
        self._last, self._start_unix_ns = previous, self._start_unix_ns + total_ns
        for stamp in (first, *(stamp for _, stamp in marks[:-1])):
            self._clock.free(stamp)
        return tuple(known.get(column) for column in STEP_COLUMNS)
