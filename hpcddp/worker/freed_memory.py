"""What ranks on CPUs do with memory that they free: a setting of the measurement, recorded with the page faults that it saves."""

from __future__ import annotations

import resource

from hpcddp.core.malloc import is_glibc
from hpcddp.core.point import Point


def freed_memory(point: Point) -> str | None:
    """`kept`, or `returned` to the kernel as glibc sees fit; None on a GPU, whose steps do not ask the host for memory."""
    if point.device != "cpu":
        return None
    return "kept" if point.measure.keep_memory and is_glibc() else "returned"


class PageFaults:
    """Counted over stretches of timed steps: `minor` ones are served from memory, `major` ones from a disk.

    Of all threads of the rank's process; not of its loader's.
    """

    def __init__(self) -> None:
        self._counts = {"steps": 0, "minor": 0, "major": 0}
        self._before = (0, 0)

    def begin(self) -> None:
        self._before = _faults()

    def end(self, steps: int) -> None:
        minor, major = _faults()
        self._counts["steps"] += steps
        self._counts["minor"] += minor - self._before[0]
        self._counts["major"] += major - self._before[1]

    def record(self) -> dict[str, int]:
        """As end.json has them of a rank."""
        return dict(self._counts)


def _faults() -> tuple[int, int]:
    """getrusage(2)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt, used.ru_majflt
