"""How long the steps of a run were, all of them: counts by logarithmic bins, which add up over runs whatever their step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import Floats, RunSteps

WIDTH = 0.001
"""Of a bin, as a share of the times in it: half of it is how far a quantile may be off."""

Bins = tuple[tuple[int, int], ...]
"""(bin, steps in it), ascending: bin b holds times from e^(b WIDTH) to e^((b + 1) WIDTH) ns."""


@dataclass(frozen=True)
class Distribution:
    """Of one run; steps last as long as RunSteps.step_ns has it."""

    timed: Bins
    warmup: Bins
    """Of the steps before the first that counts, in each attempt."""


def distribution(attempts: Iterable[RunSteps]) -> Distribution:
    """Of a run, by the attempts that made its steps."""
    steady, before = zip(*(_parted(steps) for steps in attempts), strict=True)
    return Distribution(pooled_bins(steady), pooled_bins(before))


def _parted(steps: RunSteps) -> tuple[Bins, Bins]:
    first = int(np.argmax(steps.steady)) if steps.steady.any() else steps.steady.size
    return binned(steps.step_ns[steps.steady]), binned(steps.step_ns[:first])


def binned(times_ns: Floats) -> Bins:
    """Those that were measured, above zero."""
    measured = times_ns[np.isfinite(times_ns) & (times_ns > 0)]
    bins, counts = np.unique(np.floor(np.log(measured) / WIDTH).astype(np.int64), return_counts=True)
    return tuple(zip(bins.tolist(), counts.tolist(), strict=True))


def pooled_bins(runs: Iterable[Bins]) -> Bins:
    """The steps of all of them."""
    counts: dict[int, int] = {}
    for number, count in (pair for bins in runs for pair in bins):
        counts[number] = counts.get(number, 0) + count
    return tuple(sorted(counts.items()))


def middle_ns(number: int) -> float:
    """The time that stands for a bin."""
    return math.exp((number + 0.5) * WIDTH)


def quantile_ns(bins: Bins, share: float) -> float:
    """The least time that at least this share of the steps do not exceed."""
    numbers, counts = _arrays(bins)
    return middle_ns(int(numbers[np.searchsorted(np.cumsum(counts), share * counts.sum())]))


def mean_ns(bins: Bins) -> float:
    """Of all steps; a bin's lie in its middle."""
    return sum(middle_ns(number) * count for number, count in bins) / sum(count for _, count in bins)


def shares_between(bins: Bins, edges_ns: Floats) -> Floats:
    """Of all steps those between each edge and the next; a bin's lie evenly in it, as edges may be closer than a bin is wide."""
    numbers, counts = _arrays(bins)
    until = np.cumsum(counts)
    ends, steps = (np.column_stack(each).ravel() for each in ((numbers, numbers + 1), (until - counts, until)))
    shares: Floats = np.diff(np.interp(np.log(edges_ns) / WIDTH, ends, steps)) / until[-1]
    return shares


def _arrays(bins: Bins) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    numbers, counts = np.array(bins, dtype=np.int64).reshape(-1, 2).T
    return numbers, counts
