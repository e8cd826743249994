"""What glibc's malloc does with memory that is freed: on CPUs a setting of the measurement."""

from __future__ import annotations

import ctypes

from hpcddp.core.point import Point

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""mallopt(3)."""

MAX_RETAINED_BYTES, MAX_BLOCK_BYTES = 2**30, 2**25
"""Bytes in all, and of one block; glibc returns larger blocks to the kernel in any case."""


def retain_freed_memory() -> bool:
    """From now on this process keeps up to MAX_RETAINED_BYTES of freed memory and reuses it; False without glibc. Without this,
    arrays that are allocated and freed cost a page fault for every 4 KiB, a microsecond in a virtual machine.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(M_TRIM_THRESHOLD, MAX_RETAINED_BYTES) and mallopt(M_MMAP_THRESHOLD, MAX_BLOCK_BYTES))


def freed_memory(point: Point) -> str | None:
    """`kept`, or `returned` to the kernel as glibc sees fit; None on a GPU, whose steps do not ask the host for memory."""
    if point.device != "cpu":
        return None
    return "kept" if point.measure.keep_memory and hasattr(ctypes.CDLL(None), "mallopt") else "returned"
