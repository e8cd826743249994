"""What glibc's malloc does with memory that is freed."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""mallopt(3)."""

LARGEST_KEPT = 2**25
"""Bytes; glibc gives larger pieces back in any case."""


def keep_memory() -> bool:
    """From now on this process keeps what it frees, up to a GiB, and takes it from there again; False where glibc is not there.

    Arrays that come and go cost a page fault for every 4 KiB otherwise, about a microsecond in a virtual machine.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(M_TRIM_THRESHOLD, 2**30) and mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT))
