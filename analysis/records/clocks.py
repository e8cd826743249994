"""Ranks' clocks against rank 0's, as measured before and after training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpcddp.core.attempt_records import ClockOffset, RankEnd

Ints = NDArray[np.int64]


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


def clock_error_ns(ranks: Sequence[RankEnd]) -> int | None:
    """The largest error of the ranks' offsets; None where a rank has none."""
    if not all(entry.offsets for entry in ranks):
        return None
    return max(offset.error_ns for entry in ranks for offset in entry.offsets)
