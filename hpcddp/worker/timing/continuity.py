"""Whether the timed rows follow each other without a gap: a loop that was restarted in between leaves one."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

from hpcddp.core.records import AFTER_PAUSE, WARMUP, steps_file

Row = dict[str, int]


def first_break(attempt: Path, rank: int) -> str | None:
    """The first place where the rank's timed rows do not follow each other, in words; None where they do.

    A step begins where the one before it ended, to the nanosecond, unless it is flagged as the first after a pause.
    """
    with steps_file(attempt, rank).open(encoding="utf-8", newline="") as lines:
        rows = ({name: int(row[name]) for name in ("step", "flags", "start_ns", "total_ns")} for row in csv.DictReader(lines))
        breaks = (_break(before, after) for before, after in itertools.pairwise(rows))
        return next((found for found in breaks if found), None)


def _break(before: Row, after: Row) -> str | None:
    if before["flags"] & WARMUP:
        return None
    if after["step"] != before["step"] + 1:
        return f"step {before['step']} is followed by step {after['step']}"
    if after["flags"] & WARMUP:
        return f"step {before['step']} is followed by step {after['step']}, a warm-up step"
    gap_ns = after["start_ns"] - before["start_ns"] - before["total_ns"]
    if gap_ns and not after["flags"] & AFTER_PAUSE:
        return f"step {after['step']} begins {gap_ns / 1e6:.3f} ms after the end of step {before['step']}"
    return None
