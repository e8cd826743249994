"""Runs of neighbouring samples read from files at their positions: what the page cache holds at once, the rest many at a time."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from torch import Tensor

from hpcddp.core.errors import HpcddpError
from hpcddp.data.source import Wait, at_once

QUEUE_DEPTH = 64
"""Reads under way at a time in one process. Of 14 KB each, 64 gave a third of the sequential rate of a cloud disk, 32 a fifth."""

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

    def begin(self, reads: Iterable[Read], owner: Tensor) -> Wait:
        """Begins to fill the rooms, parts of the memory of `owner`, which lives until they are full.

        OSError or HpcddpError, here or from waiting, for a file that is missing or cut short.
        """
        slow = [read for read in reads if not self._read_cached(read)]
        if not slow:
            return at_once
        job, queue = _Job(len(slow), owner), _threads()
        for read in slow:
            queue.put((self, read, job))
        return job.wait

    def read(self, read: Read) -> None:
        """Waits for the disk."""
        done, descriptor = 0, self._descriptor(read.file)
        while done < len(read.room):
            count = os.preadv(descriptor, [read.room[done:]], read.offset + done)
            if not count:
                raise HpcddpError(f"{self._paths[read.file]} ends before byte {read.offset + len(read.room):,}: it was cut short")
            done += count

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
            self._descriptors[number] = descriptor
        return self._descriptors[number]


class _Job:
    """Reads of one batch, counted down by the threads that do them."""

    def __init__(self, reads: int, owner: Tensor) -> None:
        self._left = reads
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


_Queue = SimpleQueue[tuple[FileReads, Read, _Job]]
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
        files, read, job = queue.get()
        try:
            files.read(read)
        except Exception as error:
            job.done(error)
        else:
            job.done(None)


def bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's memory, to be written to; the tensor must outlive it, and be contiguous."""
    array = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return memoryview(array).cast("B")
