"""Pages of files that are dropped, and what comes of files that cannot be opened."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import posix
import time
from pathlib import Path

import pytest

from hpcddp.worker.data_bench.storage import drop_pages


def resident_pages(file: Path) -> int:
    """mincore(2): how many of the file's pages are in memory."""
    size = file.stat().st_size
    marks = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), size) as mapped:
        first = ctypes.c_ubyte.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), marks)
        del first
    assert not failed
    return sum(mark & 1 for mark in marks)


def test_pages_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that has just been written, too: it is synced first."""
    monkeypatch.setattr(os, "fsync", posix.fsync)  # switched off in tests
    file = tmp_path / "large"
    file.write_bytes(os.urandom(4 << 20))
    drop_pages([file])
    assert resident_pages(file) == 0
    file.read_bytes()
    assert resident_pages(file) == (4 << 20) // mmap.PAGESIZE


def test_a_file_system_that_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some have no fsync; there is nothing to write, either."""
    file = tmp_path / "large"
    file.write_bytes(os.urandom(1 << 20))
    with file.open("rb") as opened:
        posix.fsync(opened.fileno())

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    drop_pages([file])
    assert resident_pages(file) == 0


def test_what_cannot_be_opened_is_passed_over(tmp_path: Path) -> None:
    """Nothing waits for a pipe."""
    os.mkfifo(tmp_path / "pipe")
    begun_s = time.monotonic()
    drop_pages([tmp_path / "pipe", tmp_path / "nothing", tmp_path])
    assert time.monotonic() - begun_s < 5
