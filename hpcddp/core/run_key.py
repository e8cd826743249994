"""Which run of a study is meant, and many of them in a few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hpcddp.core.text import count, natural

POINTS_SHOWN = 3
"""So many labels fit a line or two of a terminal; a study may have thousands."""


class RunKey(NamedTuple):
    """The label of a point and the number of one of its runs, which count from 1; as text `n01-g4-b32-3fa9c1d2e07b r2`."""

    label: str
    run: int

    def __str__(self) -> str:
        return f"{self.label} r{self.run}"


def run_order(key: RunKey) -> tuple[object, ...]:
    """Sorts runs by their points' sizes, whose numbers a label has in front: n16 before n100, b32 before b128."""
    return natural(key.label), key.run


def run_ranges(runs: Iterable[RunKey]) -> str:
    """`n01-g1-b8 r1-3, r5, n02-g1-b8 r1 and 17 points more`."""
    by_label: dict[str, list[int]] = {}
    for label, run in sorted(runs, key=run_order):
        by_label.setdefault(label, []).append(run)
    shown = [f"{label} {_ranges(numbers)}" for label, numbers in list(by_label.items())[:POINTS_SHOWN]]
    more = len(by_label) - len(shown)
    return ", ".join(shown) + (f" and {count(more, 'point')} more" if more else "")


def _ranges(numbers: Iterable[int]) -> str:
    """`r1-3, r5`"""
    return ", ".join(f"r{first}" if first == last else f"r{first}-{last}" for first, last in spans(numbers))


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of the numbers that follow each other: of 3, 1, 2, 5 `[(1, 3), (5, 5)]`."""
    known = set(numbers)
    firsts = sorted(number for number in known if number - 1 not in known)
    lasts = sorted(number for number in known if number + 1 not in known)
    return list(zip(firsts, lasts, strict=True))
