"""Offsets between clocks that move more than clocks do are not known."""

from __future__ import annotations

import pytest

from hpcddp.analysis.records.clocks import clock_error_ns, clocks_known, moved_ns
from hpcddp.core.attempt_records import ClockOffset, RankClock, RankEnd

SECOND = 10**9


def rank(moved: int, lasted_s: int = 100, error: int = 1000) -> RankEnd:
    """Whose clock is 5 ms off at the start, and by that much more at the end."""
    start = ClockOffset(unix_ns=SECOND, offset_ns=5_000_000, error_ns=error)
    end = ClockOffset(unix_ns=(1 + lasted_s) * SECOND, offset_ns=5_000_000 + moved, error_ns=error)
    return RankEnd(rank=0, host="r000", rows=1, crc32=1, clock=RankClock(start=start, end=end))


@pytest.mark.parametrize(("moved", "known"), [(19_000_000, True), (-19_000_000, True), (21_000_000, False), (-21_000_000, False)])
def test_200_millionths_are_what_clocks_do(moved: int, known: bool) -> None:
    """20 ms in 100 s, to either side."""
    ranks = [rank(0), rank(moved)]
    assert clocks_known(ranks) == known
    assert clock_error_ns(ranks) == (1000 if known else None)
    assert moved_ns(ranks[1]) == (0 if known else abs(moved))


def test_what_offsets_are_uncertain_by_is_no_step() -> None:
    """A short run whose offsets have an error of 1 ms each."""
    assert clocks_known([rank(0), rank(1_900_000, lasted_s=1, error=1_000_000)])
    assert not clocks_known([rank(0), RankEnd(rank=1, host="r001", rows=1, crc32=1)])
    assert clocks_known([RankEnd(rank=0, host="r000", rows=1, crc32=1)])
