"""On PYTHONPATH, makes os.pread wait for files below THROTTLED_FOLDER: all processes share THROTTLED_BYTES_PER_S of them.

A disk that serves one request at a time: who comes while it reads waits until it is free. THROTTLED_CLOCK holds when that is.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

FOLDER = os.environ.get("THROTTLED_FOLDER", "")

_pread = os.pread


def throttled_pread(descriptor: int, length: int, offset: int, /) -> bytes:
    """os.pread, no faster than that."""
    found = _pread(descriptor, length, offset)
    if os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{FOLDER}/"):
        free_s = _free_at(len(found) / float(os.environ["THROTTLED_BYTES_PER_S"]))
        time.sleep(max(0.0, free_s - time.monotonic()))
    return found


def _free_at(took_s: float) -> float:
    """When the disk has served this request too."""
    clock = os.open(os.environ["THROTTLED_CLOCK"], os.O_RDWR)
    try:
        fcntl.lockf(clock, fcntl.LOCK_EX)
        (free_s,) = struct.unpack("d", _pread(clock, 8, 0))
        free_s = max(free_s, time.monotonic()) + took_s
        os.pwrite(clock, struct.pack("d", free_s), 0)
        return float(free_s)
    finally:
        os.close(clock)


if FOLDER:
    os.pread = throttled_pread
