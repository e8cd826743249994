"""One size of all-reduce, as NCCL Inspector and as the communication hook have timed it."""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.analysis.runs.run import Run

NEAR = 0.10
"""As of the other views of `comm: check`: they agree when they are this share of the longer one apart, or"""

SMALL_S = 20e-6
"""this long: the plugin counts in microseconds, and the hook's end is an event behind the kernel's."""


@dataclass(frozen=True)
class Witnesses:
    """Medians."""

    bytes: int
    count: int
    """All-reduces that the plugin saw."""
    inspector_s: float
    hook_s: float

    @property
    def agree(self) -> bool:
        apart_s, longer_s = abs(self.inspector_s - self.hook_s), max(self.inspector_s, self.hook_s)
        return apart_s <= max(NEAR * longer_s, SMALL_S)


def witnesses(run: Run) -> Witnesses | None:
    """Of the largest size of a bucket that both have timed."""
    if run.exchange is None:
        return None
    known = run.exchange.buckets.dropna(subset=["own_ns"])
    hooked = known.groupby("bytes")["own_ns"].median() / 1e9
    both = [
        Witnesses(each.bytes, each.count, each.time_s, float(hooked[each.bytes]))
        for each in run.inspected
        if each.bytes in hooked
    ]
    return both[0] if both else None
