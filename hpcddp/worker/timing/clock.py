"""Timelines: the host's clock on a CPU, events in the compute stream on CUDA.

Events are read only when they have passed, so that timing adds no synchronisation: a part is the time the GPU spent on it, or
waited for the host to ask for it. Reading the host's clock costs about 0.05 us, recording an event a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

Stamp = Any
"""A place on a timeline: ns of perf_counter, or a CUDA event."""


class StepClock(Protocol):
    """A timeline."""

    def anchor(self) -> tuple[Stamp, int]:
        """A first stamp once all earlier work is done, and the Unix time of it in ns."""
        ...

    def unix_now_ns(self) -> int:
        """Unix time by the clock that anchors are read from, at once."""
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

    def free(self, stamps: Iterable[Stamp]) -> None:
        """They are not needed any more."""
        ...


PLACINGS = 20
"""The closest of so many is taken: on a full machine a single one was once 26 ms off, as the process lost its CPU within it."""


def _unix_offset_ns() -> tuple[int, int]:
    """How long the two readings of perf_counter took between which Unix time was read, and Unix time less their middle, in ns."""
    before, unix, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
    return after - before, unix - (before + after) // 2


class HostClock:
    """perf_counter, placed in Unix time once: it neither jumps nor is steered while a run lasts."""

    def __init__(self) -> None:
        self._unix_offset_ns = min(_unix_offset_ns() for _ in range(PLACINGS))[1]

    def anchor(self) -> tuple[int, int]:
        now = time.perf_counter_ns()
        return now, now + self._unix_offset_ns

    def unix_now_ns(self) -> int:
        return time.perf_counter_ns() + self._unix_offset_ns

    stamp = staticmethod(time.perf_counter_ns)

    def passed(self, stamp: int) -> bool:
        return True

    def between_ns(self, earlier: int, later: int) -> int:
        return later - earlier

    def wait(self, stamp: int) -> None: ...

    def free(self, stamps: Iterable[int]) -> None: ...


class EventClock:
    """Events in the current stream; `new_event` makes one that has record, query, synchronize and elapsed_time (ms)."""

    def __init__(self, new_event: Callable[[], Any]) -> None:
        self._new_event = new_event
        self._spare: list[Any] = []

    def anchor(self) -> tuple[Any, int]:
        self.free([self._placed()[1]])  # what was queued is done: those that follow meet an idle device
        placings = [self._placed() for _ in range(PLACINGS)]
        _, best, unix_ns = min(placings, key=lambda placed: placed[0])
        last = placings.pop()[1]
        unix_ns += self.between_ns(best, last)
        self.free([event for _, event, _ in placings])
        return last, unix_ns

    def _placed(self) -> tuple[int, Any, int]:
        """A stamp that has passed: how long that took, and Unix time in the middle of it, in ns."""
        before_ns = time.time_ns()
        event = self.stamp()
        event.synchronize()
        after_ns = time.time_ns()
        return after_ns - before_ns, event, (before_ns + after_ns) // 2

    def unix_now_ns(self) -> int:
        return time.time_ns()

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

    def free(self, stamps: Iterable[Any]) -> None:
        self._spare += stamps


def clock_for(device_type: str) -> StepClock:
    """The compute stream's events on `cuda`, the host's clock otherwise."""
    if device_type != "cuda":
        return HostClock()
    import torch

    return EventClock(lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
