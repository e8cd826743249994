"""Runs of neighbouring samples read from files at their positions: what the page cache holds at once, the rest many at a time."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from torch import Tensor

from hpcddp.core.errors import HpcddpError
from hpcddp.data.source import Wait, at_once

QUEUE_DEPTH = 64
"""Reads under way at a time in one process. Of 14 KB each, 64 gave a third of the sequential rate of a cloud disk, 32 a fifth."""

READS_AT_ONCE = 8
"""That a thread takes, to do one after the other: to be woken for each costs more than the read."""

_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
"""preadv: only what the page cache has (Linux)."""


class Read(NamedTuple):
    """Bytes of a file, and where they go."""

    file: int
    """Its number."""
    offset: int
    room: memoryview


class FileReads:
    """Files that are read at positions; each is opened when it is first read from."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._descriptors: dict[int, int] = {}

    def __del__(self) -> None:
        """Nothing is under way any more: whoever reads refers to this."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def begin(self, reads: Sequence[Read], owner: Tensor) -> Wait:
        """Begins to fill the rooms, parts of the memory of `owner`, which lives until they are full.

        OSError or HpcddpError, here or from waiting, for a file that is missing or cut short.
        """
        cached = next((place for place, read in enumerate(reads) if not self._read_cached(read)), len(reads))
        slow = reads[cached:]  # some of them may be cached, too, which costs less than finding out
        if not slow:
            return at_once
        starts, queue = range(0, len(slow), READS_AT_ONCE), _threads()
        job = _Job(len(starts), owner)
        for start in starts:
            queue.put((self, slow[start : start + READS_AT_ONCE], job))
        return job.wait

    def read(self, reads: Sequence[Read]) -> None:
        """One after the other, waiting for the disk."""
        for number, offset, room in reads:
            count = os.preadv(self._descriptor(number), [room], offset)
            while count < len(room):
                more = os.preadv(self._descriptor(number), [room[count:]], offset + count)
                if not more:
                    raise HpcddpError(f"{self._paths[number]} ends before byte {offset + len(room):,}: it was cut short")
                count += more

    def _read_cached(self, read: Read) -> bool:
        descriptor = self._descriptor(read.file)
        try:
            return bool(_NO_WAIT) and os.preadv(descriptor, [read.room], read.offset, _NO_WAIT) == len(read.room)
        except OSError:  # not in the page cache, or of a file system that cannot say
            return False

    def _descriptor(self, number: int) -> int:
        if number not in self._descriptors:
            descriptor = os.open(self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing beside what is asked for
            if self._descriptors.setdefault(number, descriptor) != descriptor:  # another thread was faster
                os.close(descriptor)
        return self._descriptors[number]


class _Job:
    """What threads do for one batch, counted down by them."""

    def __init__(self, parts: int, owner: Tensor) -> None:
        self._left = parts
        self._owner = owner
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._error: Exception | None = None

    def done(self, error: Exception | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if not self._left:
                self._over.set()

    def wait(self) -> None:
        self._over.wait()
        if self._error:
            raise self._error


_Queue = SimpleQueue[tuple[FileReads, Sequence[Read], _Job]]
_queues: dict[int, _Queue] = {}
"""Of this process; one that was forked has threads of its own."""


def _threads() -> _Queue:
    """What QUEUE_DEPTH threads take reads from; they are started when the first read has to wait."""
    queue = _queues.get(os.getpid())
    if queue is None:
        queue = _queues[os.getpid()] = SimpleQueue()
        for _ in range(QUEUE_DEPTH):
            threading.Thread(target=_serve, args=(queue,), daemon=True, name="shard-reads").start()
    return queue


def _serve(queue: _Queue) -> None:
    while True:
        files, reads, job = queue.get()
        try:
            files.read(reads)
        except Exception as error:
            job.done(error)
        else:
            job.done(None)
        del files, reads, job  # an idle thread holds no batch's memory, and no file


def bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's memory, to be written to; the tensor must outlive it, and be contiguous."""
    array = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return memoryview(array).cast("B")
