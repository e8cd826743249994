"""What glibc's malloc does with memory that is freed."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""mallopt(3)."""

MOST_KEPT, LARGEST_KEPT = 2**30, 2**25
"""Bytes, of all and of one piece; glibc gives larger pieces back in any case."""


def can_keep() -> bool:
    """Whether this process has glibc's malloc."""
    return hasattr(ctypes.CDLL(None), "mallopt")


def keep_memory() -> bool:
    """This process keeps what it frees from now on, up to MOST_KEPT, and takes it from there again; False without glibc.

    Arrays that come and go cost a page fault for every 4 KiB otherwise, about a microsecond in a virtual machine.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(M_TRIM_THRESHOLD, MOST_KEPT) and mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT))
