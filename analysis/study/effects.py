"""How well a point's median over runs is known, by interpolated order statistics; whether groups of runs differ beyond chance."""

from __future__ import annotations

import functools
import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.study.load import load_study
from hpcddp.core.batch_means import CONFIDENCE
from hpcddp.core.run_root import Study

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


Groups = Sequence[Sequence[float]]
Statistic = Callable[..., Floats]
"""Of each row of values, in groups of these sizes, how far groups are apart."""

DRAWS = 10_000
SEED = 1

CHANCE = 0.025
"""Of studies in which no key does anything, about this share says otherwise."""

LEAST = 3
"""Runs of each value: two say too little of how much runs differ where one in five is slow."""


def p_value(groups: Groups) -> float | None:
    """How often groups of runs that do not differ come out at least as different as these; None where runs are too few.

    By the two groups furthest apart, beside the variance within groups, of logarithms of rates (Tukey 1953), put beside DRAWS
    draws of groups of the same sizes.
    """
    return None if min(map(len, groups)) < LEAST else _share_drawn(groups, _widest)


def interaction_p_value(cells: Sequence[Groups]) -> float | None:
    """The same of cells: how often chance makes two keys depend on each other at least as much (analysis of variance)."""
    groups = [cell for row in cells for cell in row]
    return None if min(map(len, groups)) < LEAST else _share_drawn(groups, _beside_sum, len(cells))


def half_width(groups: Groups, i: int, j: int) -> float:
    """Of the 95 % interval of the difference of two groups' mean logarithms, for all pairs of groups at once (Tukey, Kramer)."""
    sizes = tuple(map(len, groups))
    within = float(_within(_row(groups), sizes)[0])
    return float(np.quantile(_by_chance(sizes, _widest), CONFIDENCE) * (within * (1 / sizes[i] + 1 / sizes[j])) ** 0.5)


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Each, as if it were the only one (Holm 1979): all together name what is not there no more often."""
    least, found = 0.0, list(p_values)
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    for rank, (p, i) in enumerate(known):
        found[i] = least = max(least, min(1.0, p * (len(known) - rank)))
    return found


def _share_drawn(groups: Groups, statistic: Statistic, *more: int) -> float:
    sizes = tuple(map(len, groups))
    found = float(statistic(_row(groups), sizes, *more)[0])
    return float((1 + np.count_nonzero(_by_chance(sizes, statistic, *more) >= found * (1 - 1e-12))) / (1 + DRAWS))


@functools.lru_cache(maxsize=64)
def _by_chance(sizes: tuple[int, ...], statistic: Statistic, *more: int) -> Floats:
    """What the statistic comes to in DRAWS studies of such groups that do not differ."""
    return statistic(np.random.default_rng(SEED).standard_normal((DRAWS, sum(sizes))), sizes, *more)


def _row(groups: Groups) -> Floats:
    return np.log(np.concatenate(groups, dtype=np.float64))[None, :]


def _widest(values: Floats, sizes: tuple[int, ...]) -> Floats:
    """Of each row the largest difference between means, by its spread within groups."""
    means = _means(values, sizes)
    apart = [(means[:, i] - means[:, j]) ** 2 / (1 / sizes[i] + 1 / sizes[j]) for i, j in combinations(range(len(sizes)), 2)]
    return np.asarray(_by_within(np.max(apart, axis=0), values, sizes) ** 0.5, dtype=np.float64)


def _beside_sum(values: Floats, sizes: tuple[int, ...], rows: int) -> Floats:
    """The variance that the sum of two keys' effects leaves between cells, in so many rows, by that within."""
    means = _means(values, sizes).reshape(len(values), rows, -1)
    left = means - means.mean(axis=1, keepdims=True) - means.mean(axis=2, keepdims=True) + means.mean(axis=(1, 2), keepdims=True)
    return _by_within((left**2).sum(axis=(1, 2)), values, sizes)


def _means(values: Floats, sizes: tuple[int, ...]) -> Floats:
    return np.asarray(np.add.reduceat(values, np.cumsum((0, *sizes[:-1])), axis=1) / np.array(sizes), dtype=np.float64)


def _within(values: Floats, sizes: tuple[int, ...]) -> Floats:
    return np.asarray(((values - np.repeat(_means(values, sizes), np.array(sizes), axis=1)) ** 2).sum(axis=1), dtype=np.float64)


def _by_within(between: Floats, values: Floats, sizes: tuple[int, ...]) -> Floats:
    """What equals to 9 digits is equal."""
    nothing = 1e-18 * values.shape[1]
    return np.where(between <= nothing, 0.0, between / np.maximum(_within(values, sizes), nothing))


Values = Sequence[Fraction] | Sequence[float]

RESAMPLES = 1000
INTERVAL = f"{100 * CONFIDENCE:.0f} %"


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians. `kind`: low and high are `95 %` (an interval), a `range`, or None of one run against one."""

    ratio: float
    low: float | None
    high: float | None
    kind: str | None


def ratio(a: Values, b: Values) -> Ratio:
    """Median of `a` / median of `b`, all positive, at least one each; in any order.

    95 % interval from six values of each on: percentile bootstrap of both medians (Efron & Tibshirani 1993, chapter 8), seeded.
    It held the truth in 94.2 to 97.2 % of 2000 simulated studies each of 6 and 10 runs (normal, exponential, one run in five
    slow; equal and unequal spread): two medians together are smooth enough for what fails for one. With fewer values the range:
    the smallest of `a` against the largest of `b`, and the other way round. Either holds the ratio itself. The range of five
    claims more than the interval of six (99.2 %), and is wider.
    """
    middle = float(_median(a) / _median(b))
    return Ratio(middle, *ends_of(middle, a, b, operator.truediv))


def ends_of(
    middle: float, a: Values, b: Values, apart: Callable[[Any, Any], Any]
) -> tuple[float | None, float | None, str | None]:
    """Low, high and what they are, of how far the medians of two groups are `apart`: their ratio, or their difference."""
    if len(a) == len(b) == 1:
        return None, None, None
    if interval_rank(min(len(a), len(b))) is None:
        return float(apart(min(a), max(b))), float(apart(max(a), min(b))), "range"
    draw = np.random.default_rng(SEED)
    drawn = apart(np.median(resampled(a, draw), axis=1), np.median(resampled(b, draw), axis=1))
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return min(float(low), middle), max(float(high), middle), INTERVAL  # of equal runs they are one value but for its last bit


@dataclass(frozen=True)
class Spread:
    """What a figure draws of a point, at `x`: its median, and its interval or, where runs are too few for one, its runs."""

    x: float
    middle: float
    ends: tuple[float, float] | None
    runs: Sequence[float]

    @property
    def drawn(self) -> list[float]:
        """From the lowest to the highest."""
        return sorted([self.middle, *(self.ends or self.runs)])


Ratios = Mapping[tuple[str, int, int], Sequence[float]]
"""(series, nodes, GPUs per node) -> each run's value by the point's median."""


def spreads(points: pd.DataFrame, column: str, ratios: Ratios) -> list[Spread]:
    """Of the rows in which `column` is known, shares in %; a baseline, whose share is exact, has as many runs as its rate."""
    scale, found = 100 if column.startswith("efficiency") else 1, []
    for _, row in points.dropna(subset=[column]).iterrows():
        kind, middle = row.get(f"{column}_interval", row["interval"]), float(row[column]) * scale
        low, high = (middle if pd.isna(end) else float(end) * scale for end in (row[f"{column}_low"], row[f"{column}_high"]))
        sure = str(row["interval"] if pd.isna(kind) else kind) == INTERVAL
        runs = [middle * ratio for ratio in ratios.get((row["series"], row["nodes"], row["gpus_per_node"]), ())]
        found.append(Spread(float(row["gpus"]), middle, (low, high) if sure else None, runs))
    return found


def spread_note(drawn: Iterable[Spread], of: str, dots: str = "runs") -> str:
    """What bars and dots of a figure are; `of`: what an interval holds; `dots`: what a dot is of."""
    every = list(drawn)
    bars, few = ([max(len(each.runs), 1) for each in every if (each.ends is None) is runs] for runs in (False, True))
    of_bars = f"Bars: {INTERVAL} CI of {of} ({_each(bars)} runs each)." if bars else ""
    of_dots = f"Dots: {dots} ({_each(few)} each){'; dash: median' if max(few) > 1 else ''}." if few else ""
    return " ".join(filter(None, (of_bars, of_dots)))


def _each(runs: Sequence[int]) -> str:
    """`3`, `1 to 3`"""
    return " to ".join(map(str, sorted({min(runs), max(runs)})))


def effect_confidence(n: int) -> float:
    """How often the range of the ratio of two groups of n values holds the true one, where they differ in scale alone: it misses
    where all of one group lie beyond all of the other."""
    return 1 - 2 / math.comb(2 * n, n)


def resampled(values: Values, draw: np.random.Generator) -> NDArray[np.float64]:
    """RESAMPLES samples of n values each, drawn with replacement, as rows; the order of `values` makes no difference."""
    ordered = np.array(sorted(map(float, values)))
    return ordered[draw.integers(len(ordered), size=(RESAMPLES, len(ordered)))]


def _median(values: Values) -> Fraction:
    """The median as an exact fraction, so that equal medians have a ratio of exactly 1."""
    return statistics.median([Fraction(value) for value in values])


def precision(study: Study) -> dict[str, tuple[int, float | None]]:
    """By label: runs that are compared, and half the width of their median's 95 % interval, % of it; None below six runs.

    Points with a run that is not done, or does not count, are left out, and benchmarks of collectives. Where software or GPUs
    have changed in between, the runs are those of the newest run's kind: others are never pooled with them. HpcddpError before
    the first submission.
    """
    found = {}
    for label, of_label in groupby(load_study(study).runs, key=lambda run: run.label):
        runs = list(of_label)
        if all(run.state == "counts" and run.step_ns is not None for run in runs):
            alike = [run for run in runs if (run.env_id, run.gpu) == (runs[-1].env_id, runs[-1].gpu)]
            found[label] = len(alike), half_width_percent([run.rate_per_s or Fraction(0) for run in alike])
    return found
