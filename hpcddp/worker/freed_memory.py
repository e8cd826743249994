"""What ranks on CPUs do with memory that they free: a setting of the measurement."""

from __future__ import annotations

from hpcddp.core.malloc import is_glibc
from hpcddp.core.point import Point


def freed_memory(point: Point) -> str | None:
    """`kept`, or `returned` to the kernel as glibc sees fit; None on a GPU, whose steps do not ask the host for memory."""
    if point.device != "cpu":
        return None
    return "kept" if point.measure.keep_memory and is_glibc() else "returned"
