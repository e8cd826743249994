"""Whether runs at several values of a key differ by more than runs at one value do."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpcddp.core.repetitions import FEWEST

Floats = NDArray[np.float64]

DRAWS = 10_000
SEED = 1

CHANCE = 0.035
"""Of studies in which a key does nothing, about this share says otherwise; 5 % at most, also where one run in five is slow, which
Fisher's F does not expect."""

LEAST = 3
"""Runs of each value: two say too little of how much runs differ where one in five is slow."""


def p_value(groups: Sequence[Sequence[float]]) -> float | None:
    """How often groups of runs that do not differ come out at least as different as these; None where runs are too few.

    From FEWEST runs of each on by ranks (Kruskal and Wallis 1952), whatever the runs' distribution. Fewer have hardly any order
    to go by: then by the variance between and within groups (Fisher's F), which takes logarithms of rates for normal. Either is
    put beside DRAWS draws of groups of the same sizes.
    """
    sizes = tuple(map(len, groups))
    if min(sizes) < LEAST:
        return None
    by_rank = min(sizes) >= FEWEST
    values = np.log(np.concatenate([np.asarray(group, dtype=np.float64) for group in groups]))[None, :]
    found = float((_between_ranks if by_rank else _variance_ratio)(values, sizes)[0])
    drawn = _by_chance(sizes, by_rank)
    return float((1 + np.count_nonzero(drawn >= found * (1 - 1e-12))) / (1 + DRAWS))


@functools.lru_cache(maxsize=64)
def _by_chance(sizes: tuple[int, ...], by_rank: bool) -> Floats:
    """What the statistic comes to in DRAWS studies of such groups that do not differ."""
    draws = np.random.default_rng(SEED).standard_normal((DRAWS, sum(sizes)))
    return _between_ranks(draws, sizes) if by_rank else _variance_ratio(draws, sizes)


def _variance_ratio(values: Floats, sizes: tuple[int, ...]) -> Floats:
    """Of each row the variance between groups by that within them; what equals to 9 digits is equal."""
    starts = np.cumsum((0, *sizes[:-1]))
    of_group = np.array(sizes)
    means = np.add.reduceat(values, starts, axis=1) / of_group
    between = ((means - values.mean(axis=1, keepdims=True)) ** 2 * of_group).sum(axis=1)
    within = ((values - np.repeat(means, of_group, axis=1)) ** 2).sum(axis=1)
    nothing = 1e-18 * values.shape[1]
    return np.where(between <= nothing, 0.0, between / np.maximum(within, nothing))


def _between_ranks(values: Floats, sizes: tuple[int, ...]) -> Floats:
    """Of each row the squared rank sums by group; equal values share the mean of their ranks."""
    ranks = np.empty_like(values)
    np.put_along_axis(ranks, values.argsort(axis=1), np.arange(values.shape[1], dtype=np.float64)[None, :], axis=1)
    if len(values) == 1:
        _, same = np.unique(values[0].round(9), return_inverse=True)
        ranks[0] = (np.bincount(same, weights=ranks[0]) / np.bincount(same))[same]
    centred = ranks - (values.shape[1] - 1) / 2
    sums = np.add.reduceat(centred, np.cumsum((0, *sizes[:-1])), axis=1)
    return np.asarray((sums**2 / np.array(sizes)).sum(axis=1), dtype=np.float64)
