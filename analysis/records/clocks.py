"""Ranks' clocks against rank 0's, as measured before and after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def to_rank_0(times_ns: Ints, clock: Mapping[str, Any]) -> Ints:
    """Times of a rank's timeline on rank 0's: the offset measured before and after training, interpolated in between.

    `clock`: `start` and `end`, each None or `unix_ns`, `offset_ns`. One that is missing is taken to be as the other; both: 0.
    """
    known = [clock[when] for when in ("start", "end") if clock.get(when)]
    if not known:
        return times_ns
    first, last = known[0], known[-1]
    lasted_ns = last["unix_ns"] - first["unix_ns"]
    drift = (last["offset_ns"] - first["offset_ns"]) / lasted_ns if lasted_ns else 0.0
    moved = np.rint(drift * (times_ns - first["unix_ns"])).astype(np.int64)  # differences: Unix ns do not fit into a double
    at_rank_0: Ints = times_ns + first["offset_ns"] + moved
    return at_rank_0


def clock_error_ns(clocks: Sequence[Mapping[str, Any]]) -> int | None:
    """The largest error of an offset; None where any is not known."""
    if not all(is_known(clock) for clock in clocks):
        return None
    return max(int(clock[when]["error_ns"]) for clock in clocks for when in ("start", "end") if clock.get(when))


def is_known(clock: Mapping[str, Any]) -> bool:
    return bool(clock.get("start") or clock.get("end"))
