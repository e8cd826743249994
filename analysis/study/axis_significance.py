"""Whether runs at several values of a key differ by more than runs at one value do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hpcddp.core.batch_means import CONFIDENCE

Floats = NDArray[np.float64]
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
    """The same of cells, by two keys: how often chance makes the effect of one depend on the other at least as much (two-way
    analysis of variance, of logarithms of rates)."""
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
    """How often drawn groups are at least as far apart as these."""
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
