"""Which run of a study is meant, and many of them in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hpcddp.core.text import count

POINTS_SHOWN = 3
"""So many labels fit a line or two of a terminal; a study may have thousands."""


class RunKey(NamedTuple):
    """The label of a point and the number of one of its runs, which count from 1; as text `n01-g4-b32-3fa9c1d2e07b r2`."""

    label: str
    run: int

    def __str__(self) -> str:
        return f"{self.label} r{self.run}"


def run_ranges(runs: Iterable[RunKey]) -> str:
    """`n01-g1-b8 r1-3, r5, n02-g1-b8 r1 and 17 points more`."""
    by_label: dict[str, list[int]] = {}
    for label, run in sorted(runs):
        by_label.setdefault(label, []).append(run)
    shown = [f"{label} {_ranges(numbers)}" for label, numbers in list(by_label.items())[:POINTS_SHOWN]]
    more = len(by_label) - len(shown)
    return ", ".join(shown) + (f" and {count(more, 'point')} more" if more else "")


def _ranges(numbers: Sequence[int]) -> str:
    """`r1-3, r5` of sorted numbers."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ", ".join(f"r{start}" if start == end else f"r{start}-{end}" for start, end in zip(starts, ends, strict=True))
