"""How long a loader's processes take to read batches, and what of that they compute or wait for."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from torch.utils.data import Dataset, get_worker_info

from hpcddp.data.source import Batch

T = TypeVar("T")

IO = "/proc/thread-self/io"
"""`rchar: N`, then five more; `read_bytes` is the fifth (proc(5))."""

WAITED = "/proc/thread-self/schedstat"
"""Second of its numbers: ns for which the thread could have run and no processor was free (kernel documentation, sched-stats)."""


class ReadTimes(NamedTuple):
    """Sums over a rank's processes."""

    samples: int = 0
    batches: int = 0
    read_ns: int = 0
    """In calls that read a batch."""
    compute_ns: int = 0
    """Of these on a processor."""
    processor_wait_ns: int = 0
    """Of these waiting for one."""
    read_bytes: int = 0
    """Of files, in these calls: by the thread's system calls, and what of mapped files came from a disk."""
    hand_over_ns: int = 0
    """Processor time between two calls; without processes none."""
    receive_ns: int = 0
    """Processor time of the rank for taking batches; without processes none."""

    def since(self, earlier: ReadTimes) -> ReadTimes:
        return ReadTimes(*(now - before for now, before in zip(self, earlier, strict=True)))


SHARED = len(ReadTimes._fields) - 1
"""Numbers of each process; the last field is the rank's own."""


class _Begun(NamedTuple):
    wall_ns: int
    thread_ns: int
    process_ns: int
    waited_ns: int
    bytes: int


class ReadClock:
    """Counts in memory that a rank shares with the loader processes it forks, a row for each."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._counts = memoryview(mmap.mmap(-1, 8 * SHARED * max(1, workers))).cast("q")
        self._receive_ns = 0
        self._at_begin = ReadTimes()
        self._waited, self._io = _OfThread(WAITED), _OfThread(IO)
        self._ended_process_ns: int | None = None
        self.knows_processor_wait = self._waited.fields() != []
        self.knows_bytes = self._io.fields() != []

    def read_begins(self) -> _Begun:
        return _Begun(time.monotonic_ns(), time.thread_time_ns(), time.process_time_ns(), *self._passed())

    def read_ended(self, begun: _Begun, samples: int) -> None:
        info = get_worker_info()
        row = SHARED * (info.id if info else 0)
        before, process_ns = self._ended_process_ns, time.process_time_ns()
        waited_ns, read_bytes = self._passed()
        compute_ns = time.thread_time_ns() - begun.thread_ns
        read_ns = time.monotonic_ns() - begun.wall_ns  # begun first and ended last: the others are parts of it
        hand_over_ns = begun.process_ns - before if info and before is not None else 0
        added = (samples, 1, read_ns, compute_ns, waited_ns - begun.waited_ns, read_bytes - begun.bytes, hand_over_ns)
        for field, number in enumerate(added):
            self._counts[row + field] += number
        self._ended_process_ns = process_ns

    def _passed(self) -> tuple[int, int]:
        """Of the calling thread so far: ns without a processor, and bytes read."""
        waited, io = self._waited.fields(), self._io.fields()
        return int(waited[1]) if len(waited) > 1 else 0, int(io[1]) + int(io[9]) if len(io) > 9 else 0

    def received(self, batches: Iterator[T]) -> Iterator[T]:
        while True:
            begin_ns = time.thread_time_ns()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                if self.workers:
                    self._receive_ns += time.thread_time_ns() - begin_ns
            yield batch

    def begin(self) -> None:
        """From here on counts what `times` gives."""
        self._at_begin = self._now()

    def times(self) -> ReadTimes:
        """Since `begin`, where a batch was read since; otherwise from the start."""
        now = self._now()
        since = now.since(self._at_begin)
        return since if since.samples else now

    def _now(self) -> ReadTimes:
        rows = [self._counts[row : row + SHARED].tolist() for row in range(0, len(self._counts), SHARED)]
        return ReadTimes._make([*map(sum, zip(*rows, strict=True)), self._receive_ns])


class ReadsBatches(Protocol):
    """What the DataLoader calls for a batch, by (epoch, step)."""

    def __getitems__(self, place: tuple[int, int]) -> Batch: ...


class TimedBatches(Dataset[Batch]):
    """Batches of another reader, each read under the clock."""

    def __init__(self, batches: ReadsBatches, clock: ReadClock) -> None:
        self._batches = batches
        self._clock = clock

    def __getitems__(self, place: tuple[int, int]) -> Batch:
        begun = self._clock.read_begins()
        batch = self._batches.__getitems__(place)
        self._clock.read_ended(begun, len(batch[1]))
        return batch


class _OfThread:
    """Reads a file of the calling thread's: 1 us, where opening it would take five."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._of_thread = -1
        self._file = -1

    def fields(self) -> list[bytes]:
        """Its words; none where the kernel does not have it."""
        thread = threading.get_native_id()
        if thread != self._of_thread:
            self._of_thread, self._file = thread, _opened(self._path)
        with suppress(OSError):
            return os.pread(self._file, 200, 0).split()
        return []


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
