"""What NCCL Inspector wrote of a run's all-reduces: by size, how long they took once every rank was there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hpcddp.analysis.util.regular_files import plain_value, read_regular
from hpcddp.core.records import inspector_folder

MOST_BYTES = 2**24
"""Of a rank's file, from its beginning: some 40,000 collectives, far more than a median needs."""


@dataclass(frozen=True)
class InspectedSize:
    """All-reduces of one size."""

    bytes: int
    time_s: float
    """The median of their times, each on the rank that had it shortest: a kernel that is early waits for the others."""
    count: int


def read_inspector(attempt: Path, ranks: int) -> tuple[InspectedSize, ...]:
    """Largest first, of communicators over so many ranks; nothing where the plugin was not there."""
    shortest_us: dict[tuple[str, int, int], int] = {}
    for file in sorted(inspector_folder(attempt).glob("*.log")):
        for one in _all_reduces(file, ranks):
            shortest_us[one[:3]] = min(one[3], shortest_us.get(one[:3], one[3]))
    by_size: dict[int, list[int]] = {}
    for (_, _, size), time_us in shortest_us.items():
        by_size.setdefault(size, []).append(time_us)
    return tuple(InspectedSize(size, median(found) / 1e6, len(found)) for size, found in sorted(by_size.items(), reverse=True))


def _all_reduces(file: Path, ranks: int) -> Iterator[tuple[str, int, int, int]]:
    """Communicator, number, size and time of each that the GPU timed; nothing of a file that cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        for line in read_regular(file, MOST_BYTES, cut=True).splitlines():
            if one := _all_reduce(line, ranks):
                yield one


def _all_reduce(line: bytes, ranks: int) -> tuple[str, int, int, int] | None:
    try:
        found: dict[str, Any] = plain_value(line)
        header, done = found["header"], found["coll_perf"]
        timed_by_gpu = done.get("coll_timing_source", "kernel_gpu") == "kernel_gpu"
        if done["coll"] == "AllReduce" and header["n_ranks"] == ranks and timed_by_gpu:
            number, size, time_us = (round(done[key]) for key in ("coll_sn", "coll_msg_size_bytes", "coll_exec_time_us"))
            return str(header["id"]), number, size, time_us
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # a point-to-point operation, or a line that a killed process left torn
    return None
