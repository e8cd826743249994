"""How well numbers are known: a point's median over runs by interpolated order statistics, a run's mean step by batch means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hpcddp.core.batch_means import CONFIDENCE, mean_interval

Floats = NDArray[np.float64]

INTERPOLATED_FROM = 7
"""Runs. Six have their whole range, which holds the median with 96.9 %: interpolated to 95 % it would be a tenth narrower than
the range of five, which holds it with 93.75 %."""


def spread(values: Sequence[Fraction]) -> tuple[float | None, float | None, str | None]:
    """Low, high and what they are: the 95 % interval of the median from six values on, their range below, nothing for one."""
    if len(values) < 2:
        return None, None, None
    ordered = [float(value) for value in sorted(values)]
    rank = interval_rank(len(values))
    if rank is None:
        return ordered[0], ordered[-1], "range"
    inwards = interpolation(len(values), rank) if len(values) >= INTERPOLATED_FROM else 0.0
    low = _between(ordered[rank - 1], ordered[rank], inwards)
    high = _between(ordered[-rank], ordered[-rank - 1], inwards)
    return low, high, "95 %"


def range_confidence(n: int) -> float:
    """How often the range of n values holds the median that they are drawn around, whatever the distribution: 75 % of three."""
    return _confidence(n, 1)


def interval_rank(n: int) -> int | None:
    """The largest k for which the k-th smallest and k-th largest of n values hold the median with at least 95 % confidence.

    Exact and free of assumptions on the distribution: each value lies below the median with probability 1/2, so the
    interval misses it with probability 2 P(Binomial(n, 1/2) < k): the interval that belongs to the sign test. None below
    six values: the whole range of five holds the median with 93.75 %, of six with 96.9 %.
    """
    missed, rank = 0.0, 0
    while rank < n and (missed := missed + 2 * math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        rank += 1
    return rank or None


def interpolation(n: int, rank: int) -> float:
    """How far the interval's ends lie from the rank-th value inwards to the next, so that it holds the median with 95 %.

    Hettmansperger & Sheather 1986, "Confidence intervals based on interpolated order statistics": (n - k) I / (k + (n - 2k) I)
    with I = (g_k - 0.95) / (g_k - g_k+1), g_k the confidence between the k-th smallest and k-th largest. Exact for Laplace's
    distribution, close to it for others (Nyblom 1992). See docs/method.md for how it compares.
    """
    outer, inner = _confidence(n, rank), _confidence(n, rank + 1)
    share = (outer - CONFIDENCE) / (outer - inner)
    return (n - rank) * share / (rank + (n - 2 * rank) * share)


def _confidence(n: int, rank: int) -> float:
    return 1 - 2 * sum(math.comb(n, i) for i in range(rank)) / (1 << n)


def _between(start: float, end: float, share: float) -> float:
    return start + share * (end - start)


def half_width_percent(values: Sequence[Fraction]) -> float | None:
    """Half the width of the median's 95 % interval as a share of the median; None below six values."""
    low, high, kind = spread(values)
    if kind != "95 %" or low is None or high is None:
        return None
    return 50 * (high - low) / float(statistics.median(values))


def mean_half_percent(step_ns: Floats) -> float | None:
    """Half the 95 % interval of the mean of a run's steady steps, as a share of it; None where they are too few.

    The function that also stops a run (worker/training/stop_rule.py), there with rank 0's steps: a tenth wider or narrower at
    most, which tests/analysis/runs/test_intervals.py holds.
    """
    return mean_interval(step_ns.tolist()).half_percent if step_ns.size else None
