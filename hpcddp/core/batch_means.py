"""The 95 % interval of a run's mean step time. One method for the job and for analysis: standard library and Python 3.10."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import NamedTuple

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

BATCHES = 20
"""At least as many, at most nearly twice. More than 30 make no interval better, with fewer than 10 its own width varies
(Schmeiser 1982, Batch size effects in the analysis of simulation output, Operations Research 30(3))."""

MOST_CORRELATED = 0.9
"""The largest lag-1 correlation that is assumed of batches: 20 of them cannot tell a larger one from a drift."""


class MeanInterval(NamedTuple):
    """A mean, half the width of its 95 % interval (None below BATCHES steps), and how many independent steps give the same."""

    mean: float
    half_width: float | None
    effective_steps: float | None

    @property
    def half_percent(self) -> float | None:
        """Half the interval's width as a share of the mean."""
        return None if self.half_width is None else 100 * self.half_width / self.mean


def mean_interval(times: Sequence[float]) -> MeanInterval:
    """The mean of `times`, steps that depend on those before them: at least one, all above zero.

    Steps are summed in batches, whose means vary as the mean of all does, times the square root of their number: Student's t
    (Conway 1963). Batches that are too short still depend on each other, and the interval would be too narrow: it is widened by
    what their lag-1 correlation r makes of the variance of a mean, (1 + r) / (1 - r). Negative r, as of a stall that comes
    regularly, does not narrow it. See docs/method.md for how often it holds the truth.
    """
    n, mean = len(times), fmean(times)
    if n < BATCHES:
        return MeanInterval(mean, None, None)
    means = _batch_means(times)
    centre, k = fmean(means), len(means)
    away = [value - centre for value in means]
    squares = sum(value * value for value in away)
    error = math.sqrt(squares / (k - 1) / k * _widened(away, squares))
    return MeanInterval(mean, student_t(k - 1) * error, _effective(times, mean, error))


def _batch_means(times: Sequence[float]) -> list[float]:
    """Means of batches of equally many steps; the first few steps, fewer than a batch has, are left out."""
    size = len(times) // BATCHES
    return [sum(times[start : start + size]) / size for start in range(len(times) % size, len(times), size)]


def _widened(away: Sequence[float], squares: float) -> float:
    """By how much neighbours' correlation raises the variance of the mean; `away`: batch means less their mean. A correlation
    comes out low by about 1 / k of k values, as their own mean was taken off (Marriott & Pope 1954).
    """
    if not squares:
        return 1.0
    lagged = sum(one * other for one, other in pairwise(away)) / squares + 1 / len(away)
    r = min(max(lagged, 0.0), MOST_CORRELATED)
    return (1 + r) / (1 - r)


def _effective(times: Sequence[float], mean: float, error: float) -> float:
    """So many independent steps of this variance have a mean with this error; no more than there are."""
    n = len(times)
    variance = sum((time - mean) ** 2 for time in times) / (n - 1)
    return min(float(n), variance / error**2) if error else float(n)


def student_t(freedom: float) -> float:
    """The 97.5 % quantile of Student's t, from four degrees of freedom on within 0.2 %. Abramowitz & Stegun 26.7.5: an expansion
    around the normal quantile in powers of 1 / freedom.
    """
    z, v = Z, freedom
    quantile: float = (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )
    return quantile
