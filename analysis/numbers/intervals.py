"""How well a median is known: over the runs of a point by interpolated order statistics, within a run by a block bootstrap."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
Z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

RESAMPLES = 1000
SEED = 1
AT_ONCE = 2_000_000
"""Values resampled at a time."""

NOTHING_DRAWN_FROM = 1500
"""Values; of shorter series the sums over blocks are too few, or vary too differently, to be taken for normal."""

FEWEST_BLOCKS = 5
"""With longer blocks there is nothing left to draw from."""


def spread(values: Sequence[Fraction]) -> tuple[float | None, float | None, str | None]:
    """Low, high and what they are: the 95 % interval of the median from six values on, their range below, nothing for one."""
    if len(values) < 2:
        return None, None, None
    ordered = [float(value) for value in sorted(values)]
    rank = interval_rank(len(values))
    if rank is None:
        return ordered[0], ordered[-1], "range"
    inwards = interpolation(len(values), rank)
    low = _between(ordered[rank - 1], ordered[rank], inwards)
    high = _between(ordered[-rank], ordered[-rank - 1], inwards)
    return low, high, "95 %"


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


def bootstrap_interval(values: Floats) -> tuple[float, float] | None:
    """The 95 % interval of the median of a series whose neighbours depend on each other; None for fewer than 20 values.

    Circular block bootstrap (Politis & Romano 1992): the quantiles of the medians of 1000 series put together from blocks of
    this one; of a long series those of infinitely many, for which nothing has to be drawn. As few blocks say little about how
    much blocks differ, it is widened as for means of batches: Student's t with blocks - 1 degrees of freedom instead of the
    normal distribution, and blocks - 1 instead of blocks in the variance. Without that, 500 steps of an AR(1) with phi 0.9 give
    an interval that holds the median in 88 % of all cases instead of 95 %.
    """
    n = values.size
    if n < 4 * FEWEST_BLOCKS:
        return None
    length = block_length(values)
    middle = float(np.median(values))
    low, high = drawn_ends(values, length) if n < NOTHING_DRAWN_FROM else limit_ends(values, length)
    blocks = n / length
    wider = student_t(blocks - 1) / Z * math.sqrt(blocks / (blocks - 1))
    return middle - (middle - low) * wider, middle + (high - middle) * wider


def bootstrap_percent(values: Floats) -> float | None:
    """Half the width of that interval as a share of the median."""
    interval = bootstrap_interval(values)
    return None if interval is None else 50 * (interval[1] - interval[0]) / float(np.median(values))


def limit_ends(values: Floats, length: int) -> tuple[float, float]:
    """What drawn_ends comes to with ever more series.

    The median of one is at most the r-th of the n values where at least half of its values are among the r smallest. How many
    are is a sum over its blocks: normal about r, with a variance that follows from how many are in each block.
    """
    n = values.size
    order, whole = np.argsort(values, kind="stable"), -(-n // length) - 1
    last = n - whole * length

    def deviation(r: int) -> float:
        smallest = np.zeros(n + length, np.int64)
        smallest[order[:r]] = 1
        smallest[n:] = smallest[:length]
        sums = np.concatenate([[0], np.cumsum(smallest)])
        in_block, in_last = sums[length : length + n] - sums[:n], sums[last : last + n] - sums[:n]
        return math.sqrt(whole * in_block.var() + in_last.var())

    ends = []
    for z in (-Z, Z):
        r = n / 2
        for _ in range(4):  # the deviation there is not quite that in the middle
            r = n / 2 + z * deviation(min(max(1, round(r)), n - 1))
        ends.append(float(np.interp(r - 0.5, np.arange(n), values[order])))
    return ends[0], ends[1]


def drawn_ends(values: Floats, length: int) -> tuple[float, float]:
    """Between which 95 % of resampled_medians lie."""
    low, high = np.quantile(resampled_medians(values, length), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def resampled_medians(values: Floats, length: int) -> Floats:
    """Medians of RESAMPLES series of the same size, each of whole blocks that begin anywhere and go on around the end."""
    return np.concatenate([_medians(values, starts, length) for starts in _starts(values.size, length)])


def _starts(n: int, length: int) -> Iterator[NDArray[np.int64]]:
    """Where the blocks of each resampled series begin, a series per row, as many at a time as memory should take."""
    draw, blocks = np.random.default_rng(SEED), -(-n // length)
    rows = max(1, AT_ONCE // n)
    for first in range(0, RESAMPLES, rows):
        yield draw.integers(n, size=(min(rows, RESAMPLES - first), blocks))


def _medians(values: Floats, starts: NDArray[np.int64], length: int) -> Floats:
    """Of the series of these blocks, a series per row, of which the last is cut to the series' length."""
    index = (starts[:, :, None] + np.arange(length)).reshape(len(starts), -1)[:, : values.size] % values.size
    medians: Floats = np.median(values[index], axis=1)
    return medians


def block_length(values: Floats) -> int:
    """Twice Politis and White's length: (2 G^2 / D n)^(1/3), G = sum |k| R(k), D = 4/3 (sum R(k))^2, R tapered to lag 2m.

    m is the lag from which on autocorrelations are no more than chance (Politis & White 2004, corrected by Patton, Politis &
    White 2009). Theirs is best for the variance of a mean; intervals come closer to 95 % with longer blocks, since what they
    tear apart at their ends weighs less. What counts for a median is on which side of it a value lies: spikes weigh no more.
    """
    n = values.size
    covariance = _autocovariance((values > np.median(values)).astype(np.float64))
    if covariance[0] <= 0:
        return 1
    most = min(len(covariance) - 1, 2 * max(1, _last_correlated_lag(covariance, n)))
    lags = np.arange(1, most + 1)
    tapered = np.minimum(1, 2 * (1 - lags / most)) * covariance[1 : most + 1]
    spectrum = covariance[0] + 2 * tapered.sum()
    if spectrum <= 0:
        return 1
    length = 2 * math.cbrt(2 * (2 * (lags * tapered).sum()) ** 2 / (4 / 3 * spectrum**2) * n)
    return max(1, min(math.ceil(length), n // FEWEST_BLOCKS))


def _autocovariance(values: Floats) -> Floats:
    """At lags 0 to sqrt(n) and a few more: beyond that estimates are noise."""
    n = values.size
    spectrum = np.fft.rfft(values - values.mean(), 2 * n)
    return np.fft.irfft(np.abs(spectrum) ** 2)[: math.ceil(math.sqrt(n)) + 2 * _in_a_row(n)] / n


def _last_correlated_lag(covariance: Floats, n: int) -> int:
    """The last lag before several in a row are within 2 sqrt(log10 n / n) of 0."""
    small = np.abs(covariance[1:] / covariance[0]) < 2 * math.sqrt(math.log10(n) / n)
    found = np.flatnonzero(np.convolve(small, np.ones(_in_a_row(n)), "valid") == _in_a_row(n))
    return int(found[0]) if found.size else len(covariance) - 1


def _in_a_row(n: int) -> int:
    return max(5, math.ceil(math.sqrt(math.log10(n))))


def student_t(freedom: float) -> float:
    """The 97.5 % quantile of Student's t, from four degrees of freedom on within 0.2 %.

    Abramowitz & Stegun 26.7.5: an expansion around the normal quantile in powers of 1 / freedom.
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
