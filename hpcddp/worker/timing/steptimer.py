"""The step timer: parts of a step lie between marks on one timeline, without a gap; its loss is read when its row is written."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch

from hpcddp.core.records import MOST_LOSS_E9, PARTS, SHARDED_PARTS, STEP_COLUMNS, WARMUP
from hpcddp.worker.timing.clock import Stamp, StepClock


class LossReader(Protocol):
    """`hold` when the step has computed its loss, `value` once the step's last mark has passed."""

    def hold(self, loss: torch.Tensor) -> Any: ...

    def value(self, held: Any) -> float: ...


class HostLosses:
    """On a CPU, where the loss is known at once."""

    def hold(self, loss: torch.Tensor) -> float:
        return loss.item()

    def value(self, held: float) -> float:
        return held


class DeviceLosses:
    """On CUDA it is copied into pinned memory, in the compute stream: the mark that closes the step comes behind the copy."""

    POOL_SIZE = 512
    """Places allocated at once: pinning takes a millisecond, and a device is rarely so many steps behind."""

    def __init__(self, *, pinned: bool = True) -> None:
        self._pinned = pinned
        self._free: list[torch.Tensor] = []

    def hold(self, loss: torch.Tensor) -> torch.Tensor:
        if not self._free:
            self._free += torch.empty(self.POOL_SIZE, dtype=loss.dtype, pin_memory=self._pinned).unbind()
        place = self._free.pop()
        place.copy_(loss, non_blocking=True)
        return place

    def value(self, held: torch.Tensor) -> float:
        self._free.append(held)
        return held.item()


def loss_reader_for(device_type: str) -> LossReader:
    """Of the device that trains."""
    return DeviceLosses() if device_type == "cuda" else HostLosses()


Row = tuple[int | None, ...]

_COLUMN = {part: STEP_COLUMNS.index(f"{part}_ns") for part in (*PARTS, "h2d_hidden")}
_COLUMN |= dict.fromkeys(SHARDED_PARTS, _COLUMN["comm_exposed"])
_TOTAL, _LOSS, _SAMPLES = (STEP_COLUMNS.index(name) for name in ("total_ns", "loss_e9", "samples"))


PAUSE = "pause"
"""A mark: what passed since the last one is of no step."""


class TimedStep(NamedTuple):
    """A step whose time has passed, in integers: of STEP_COLUMNS, and of BUCKET_COLUMNS in the order the buckets were done."""

    row: Row
    buckets: list[Row]
    total_ns: int
    loss: float | None
    """As computed; None where nothing was trained."""


class Bucket:
    """An all-reduce of a step: `ready` is when its gradients were, `done` when it had ended; set before the step closes."""

    __slots__ = ("done", "index", "ready", "size_bytes")

    done: Stamp

    def __init__(self, index: int, size_bytes: int, ready: Stamp) -> None:
        self.index = index
        self.size_bytes = size_bytes
        self.ready = ready


class _Open:
    __slots__ = ("buckets", "copy", "flags", "loss", "marks", "samples")

    def __init__(self) -> None:
        self.flags = 0
        self.marks: list[tuple[str, Stamp]] = []
        self.copy: tuple[Stamp, Stamp] | None = None
        self.buckets: list[Bucket] = []
        self.loss: Any = None
        self.samples: int | None = None


class StepTimer:
    """Collects the marks of steps and turns them into rows, in order, once their time has passed; counts from `first_step`."""

    def __init__(self, clock: StepClock, first_step: int = 0, losses: LossReader | None = None) -> None:
        self.clock = clock
        self._losses = losses or HostLosses()
        self._stamp = clock.stamp
        self._open = _Open()
        self._closed: deque[_Open] = deque()
        self._step = first_step
        self.going = False
        """Between restart and drain: steps follow each other."""
        self._takes_buckets = True
        self.sharded_ns = dict.fromkeys(SHARDED_PARTS, 0)
        """Of all steps after the warm-up that were resolved."""
        self._last, self._start_unix_ns = clock.anchor()

    def mark(self, part: str) -> None:
        """The time since the last mark was `part`; a part may come several times in a step."""
        self._open.marks.append((part, self._stamp()))

    def copied(self, begin: Stamp, end: Stamp) -> None:
        """This step's batch was copied from `begin` to `end` beside other work: h2d_hidden is what h2d_exposed leaves of it."""
        self._open.copy = (begin, end)

    def bucket(self, index: int, size_bytes: int, ready: Stamp) -> Bucket:
        """An all-reduce of this step begins. Its end may be stamped in another thread."""
        bucket = Bucket(index, size_bytes, ready)
        if self._takes_buckets:
            self._open.buckets.append(bucket)
        return bucket

    def ignore_buckets(self) -> None:
        """No further all-reduce is of a step: a hook stays in DDP when what it measured is over."""
        self._takes_buckets = False

    def loss(self, loss: Any) -> None:
        """Of this step, a tensor with one element; copied in the device's queue, so that nothing waits."""
        self._open.loss = self._losses.hold(loss)

    def discard(self) -> None:
        """Forgets what was marked of the open step; `resume` leaves out its time."""
        self._open = _Open()

    def resume(self) -> None:
        """What passed since the last mark is of no step; what is marked of the open one already stays."""
        self.mark(PAUSE)
        self.going = True

    def close_step(self, flags: int, samples: int | None = None) -> None:
        """Ends the step; the rest of it since the last mark was `other`. `samples`: that it trained, where they may vary."""
        self.mark("other")
        self._open.flags, self._open.samples = flags, samples
        self._closed.append(self._open)
        self._open = _Open()

    def position(self) -> tuple[int, int, str | None]:
        """Steps closed, marks in the open one and the last of them; another thread may call it, and is a step out at worst."""
        marks = self._open.marks
        return self._step + len(self._closed), len(marks), marks[-1][0] if marks else None

    @property
    def in_step(self) -> bool:
        return bool(self._open.marks)

    @property
    def waiting(self) -> int:
        """Closed steps that finished() or drain() has not returned yet."""
        return len(self._closed)

    def finished(self) -> Iterator[TimedStep]:
        """The steps whose last mark has passed; never waits."""
        while self._closed and self.clock.passed(self._closed[0].marks[-1][1]):
            yield self._resolve(self._closed.popleft())

    def drain(self) -> Iterator[TimedStep]:
        """All closed steps; waits for them."""
        self.going = False
        if self._closed:
            self.clock.wait(self._closed[-1].marks[-1][1])
        yield from self.finished()

    def restart(self) -> None:
        """Leaves out what was done since the last step closed; all steps must have been drained. The timeline runs on."""
        now = self._stamp()
        self.clock.wait(now)
        self._start_unix_ns += self.clock.between_ns(self._last, now)
        self.clock.free([self._last])
        self._last = now
        self.going = True

    def unix_now(self) -> Callable[[], int]:
        """Reads Unix time on the timeline of the steps, in ns; all steps must have been drained. A GPU's clock keeps a pace of
        its own: in the minutes of a run its events come to be off the host's clock."""
        stamp, unix_ns = self.clock.anchor()
        behind_ns = unix_ns - self._start_unix_ns - self.clock.between_ns(self._last, stamp)
        self.clock.free([stamp])
        return lambda: self.clock.unix_now_ns() - behind_ns

    def _resolve(self, step: _Open) -> TimedStep:
        between_ns, first, start_unix_ns = self.clock.between_ns, self._last, self._start_unix_ns
        row: list[int | None] = [None] * len(STEP_COLUMNS)
        previous, paused_ns = first, 0
        for part, stamp in step.marks:
            part_ns = between_ns(previous, stamp)
            previous = stamp
            if part == PAUSE:
                paused_ns += part_ns
                continue
            column = _COLUMN[part]
            row[column] = (row[column] or 0) + part_ns
            if part in self.sharded_ns and not step.flags & WARMUP:
                self.sharded_ns[part] += part_ns
        if step.copy:
            row[_COLUMN["h2d_hidden"]] = max(0, between_ns(*step.copy) - (row[_COLUMN["h2d_exposed"]] or 0))
        total_ns = between_ns(first, previous) - paused_ns
        loss = None if step.loss is None else self._losses.value(step.loss)
        row[0], row[1], row[2], row[_TOTAL] = self._step, step.flags, start_unix_ns + paused_ns, total_ns
        row[_LOSS], row[_SAMPLES] = loss_cell(loss), step.samples
        buckets = self._bucket_rows(step.buckets) if step.buckets else []
        self.clock.free(_spent(first, step))
        self._last, self._start_unix_ns = previous, start_unix_ns + paused_ns + total_ns
        self._step += 1
        return TimedStep(tuple(row), buckets, total_ns, loss)

    def _bucket_rows(self, buckets: list[Bucket]) -> list[Row]:
        between_ns, first, start_unix_ns = self.clock.between_ns, self._last, self._start_unix_ns
        times_ns = [
            (between_ns(first, bucket.done), between_ns(first, bucket.ready), bucket.index, bucket.size_bytes)
            for bucket in buckets
        ]
        return [
            (self._step, index, size_bytes, start_unix_ns + ready_ns, start_unix_ns + done_ns)
            for done_ns, ready_ns, index, size_bytes in sorted(times_ns)
        ]


def loss_cell(loss: float | None) -> int | None:
    """As records have it; empty for none, and for one that is no number."""
    return min(round(loss * 1e9), MOST_LOSS_E9) if loss is not None and math.isfinite(loss * 1e9) else None


def _spent(first: Stamp, step: _Open) -> list[Stamp]:
    """All stamps but the last: the next step begins with it."""
    spent = [stamp for _, stamp in step.marks]
    spent[-1] = first
    if step.copy:
        spent += step.copy
    for bucket in step.buckets:
        spent += (bucket.ready, bucket.done)
    return spent
