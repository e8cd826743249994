"""Ranks' clocks against rank 0's, as measured before and after training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpcddp.core.attempt_records import ClockOffset, RankEnd

Ints = NDArray[np.int64]

PACE = 200e-6
"""By which two clocks may go apart, as a share of the time: quartzes are good to 50 millionths each, and what steers clocks (NTP)
moves them by 500 at most for a moment. What moves more was set anew meanwhile, nobody knows when."""


def to_rank_0(times_ns: Ints, offsets: Sequence[ClockOffset]) -> Ints:
    """Times of a rank's timeline on rank 0's, by the rank's offsets before and after training, interpolated in between.

    A single one holds all the time; without any, times are taken to be rank 0's.
    """
    if not offsets:
        return times_ns
    first, last = offsets[0], offsets[-1]
    lasted_ns = last.unix_ns - first.unix_ns
    drift = (last.offset_ns - first.offset_ns) / lasted_ns if lasted_ns else 0.0
    moved = np.rint(drift * (times_ns - first.unix_ns)).astype(np.int64)  # differences: Unix ns do not fit into a double
    at_rank_0: Ints = times_ns + first.offset_ns + moved
    return at_rank_0


def moved_ns(entry: RankEnd) -> int:
    """By how much a rank's clock moved against rank 0's where that is more than clocks do; else 0."""
    if len(entry.offsets) < 2:
        return 0
    first, last = entry.offsets[0], entry.offsets[-1]
    moved, may = abs(last.offset_ns - first.offset_ns), PACE * abs(last.unix_ns - first.unix_ns) + first.error_ns + last.error_ns
    return moved if moved > may else 0


def clocks_known(ranks: Sequence[RankEnd]) -> bool:
    """Whether times of different ranks can be compared; one rank has nobody to be compared with."""
    return len(ranks) == 1 or all(entry.offsets and not moved_ns(entry) for entry in ranks)


def clock_error_ns(ranks: Sequence[RankEnd]) -> int | None:
    """The largest error of the ranks' offsets; None where they are not known."""
    if not clocks_known(ranks) or not all(entry.offsets for entry in ranks):
        return None
    return max(offset.error_ns for entry in ranks for offset in entry.offsets)
