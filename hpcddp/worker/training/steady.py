"""Where the warm-up of a series of step times ends, and how well its median is known. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

BATCH = 5
"""The 5 of MSER-5."""

FEWEST = 20 * BATCH
"""Steps below which no warm-up is looked for: of fewer than 20 means of five, chance decides."""

WINSORISED_AT = 0.9

Z95 = 1.959964
"""97.5 % quantile of the normal distribution."""

MAX_LAG = 10_000
"""What still correlates over so many steps is a drift: then no interval is given."""


class MedianInterval(NamedTuple):
    """A median, its 95 % interval (None where there are too few steps for one), and how many independent steps tell as much."""

    median_ns: float
    low_ns: float | None
    high_ns: float | None
    effective_steps: float | None

    @property
    def half_percent(self) -> float | None:
        """Half the interval's width as a share of the median."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return 50 * (self.high_ns - self.low_ns) / self.median_ns


def warmup_steps(times_ns: Sequence[int]) -> int | None:
    """How many steps at the start belong to the warm-up; at most half of them. None for fewer than FEWEST steps.

    MSER-5: of the means z_1..z_m of five steps each, leave out the first d with the smallest sum over i > d of
    (z_i - mean of z_(d+1)..z_m)^2 / (m - d)^2, d <= m/2 (White 1997, An effective truncation heuristic for bias reduction in
    simulation output, Simulation 69(6); White, Cobb & Spratt 2000 for means of five). Steps slower than the 90th percentile
    count as that: else a single spike looks like the end of a warm-up.
    """
    if len(times_ns) < FEWEST:
        return None
    means = _winsorised_means(times_ns)
    centre = sum(means) / len(means)
    total = squares = 0.0
    errors = [0.0] * len(means)
    for cut in range(len(means) - 1, -1, -1):
        away, left = means[cut] - centre, len(means) - cut
        total += away
        squares += away * away
        errors[cut] = (squares - total * total / left) / left**2
    allowed = errors[: len(means) // 2 + 1]
    return BATCH * allowed.index(min(allowed))


def median_interval(times_ns: Sequence[int]) -> MedianInterval:
    """Median of steps that depend on those before them, with its 95 % interval; at least one step.

    The interval lies between two of the ordered steps, so that nothing is assumed of how step times are distributed: of n
    independent ones those at n/2 -+ z sqrt(n)/2 (Hoefler & Belli 2015, rule 5; Le Boudec 2010, chapter 2). n dependent steps
    tell as much as n_eff independent ones: at n (1/2 -+ z / (2 sqrt(n_eff))).
    """
    ordered, n = sorted(times_ns), len(times_ns)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    effective = effective_steps(times_ns, median)
    if effective is None:
        return MedianInterval(median, None, None, None)
    reach = Z95 / (2 * math.sqrt(effective))
    low, high = math.floor(n * (0.5 - reach)), math.ceil(n * (0.5 + reach)) + 1
    if low < 1 or high > n:
        return MedianInterval(median, None, None, effective)
    return MedianInterval(median, ordered[low - 1], ordered[high - 1], effective)


def effective_steps(times_ns: Sequence[int], median_ns: float) -> float | None:
    """n / (1 + 2 sum of autocorrelations) of whether each step is above the median; at least one step.

    What counts for a median is on which side of it a step lies (Vehtari et al. 2021, Bayesian Analysis 16(2)); spikes
    weigh no more than other slow steps. The sum ends before the first pair of neighbouring lags whose sum is not positive (Geyer
    1992, initial positive sequence). Each autocorrelation comes out low by about 1 / n_eff, as the series' own mean was taken off
    (Marriott & Pope 1954, Biometrika 41): that is added again. None where the sum does not end within MAX_LAG.
    """
    n = len(times_ns)
    above = int("".join("1" if time > median_ns else "0" for time in times_ns), 2)  # bits: a lag costs microseconds
    share = above.bit_count() / n

    def covariance(lag: int) -> float:
        later, earlier = above & ((1 << (n - lag)) - 1), above >> lag
        both = (later & earlier).bit_count()
        return (both - share * (later.bit_count() + earlier.bit_count())) / (n - lag) + share**2

    variance = covariance(0)
    if not variance:
        return float(n)
    pairs, lag = 0.0, 0
    for lag in range(0, n - 1, 2):
        pair = (covariance(lag) + covariance(lag + 1)) / variance
        if pair <= 0:
            break
        if lag >= MAX_LAG:
            return None
        pairs += pair
    return n / (max(1.0, 2 * pairs - 1) * (1 + 2 * lag / n))


def _winsorised_means(times_ns: Sequence[int]) -> list[float]:
    most = sorted(times_ns)[int(WINSORISED_AT * (len(times_ns) - 1))]
    capped = [min(time, most) for time in times_ns]
    return [sum(capped[start : start + BATCH]) / BATCH for start in range(0, len(capped) - BATCH + 1, BATCH)]
