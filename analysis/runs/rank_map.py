"""Which rank is slower than the others, and when: what each needed by itself, against the median rank, over the course of a run.

A step is as long on every rank, since all wait for the last. What shows a straggler is the rest of its step: all but exposed
communication, which on the others is waiting for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import Floats, RunSteps, median_step_ns

MOST_COLUMNS = 60
MOST_RANKS = 64
"""With more a row is a host: its slowest rank."""

LEAST_STEPS = 20
MEASURED_IN = 5
"""Steps a column has at least: the median of fewer is one slow step."""


@dataclass(frozen=True)
class RankMap:
    """Of one run of several ranks."""

    hosts: tuple[str, ...]
    """Of each row."""
    ranks: tuple[int, ...] | None
    """Of each row; None where rows are hosts."""
    steps: tuple[int, ...]
    """Timed steps before each column, and all of them last."""
    over_percent: tuple[tuple[float, ...], ...]
    """(rows, columns): the median over the column's steps minus the median rank's (of two in the middle the faster one's), %
    of the run's median step.
    """


def rank_map(steps: RunSteps, hosts: Sequence[str]) -> RankMap | None:
    """None for a single rank, for fewer than LEAST_STEPS, and where nothing was measured; `hosts` are those of the ranks."""
    step_ns, own = median_step_ns(steps), _steady(steps)
    count = own.shape[1]
    if len(hosts) < 2 or count < LEAST_STEPS or not step_ns or not math.isfinite(own.sum()):
        return None
    columns = max(1, min(MOST_COLUMNS, count // MEASURED_IN))
    edges = [round(count * i / columns) for i in range(columns + 1)]
    narrow = _narrowed(own)
    typical = np.stack([_medians(narrow[:, a:b]) for a, b in itertools.pairwise(edges)], axis=1)
    middle = np.sort(typical, axis=0)[(len(hosts) - 1) // 2]
    over = np.round((typical - middle) / step_ns * 100, 2)
    if len(hosts) > MOST_RANKS:
        named = list(dict.fromkeys(hosts))
        by_host = [np.max(over[[host == name for host in hosts]], axis=0) for name in named]
        return RankMap(tuple(named), None, tuple(edges), _plain(by_host))
    return RankMap(tuple(hosts), tuple(range(len(hosts))), tuple(edges), _plain(over))


def _steady(steps: RunSteps) -> Floats:
    """own_ns of the steady steps; not copied where these follow each other."""
    places = np.flatnonzero(steps.steady)
    begin, end = (int(places[0]), int(places[-1]) + 1) if places.size else (0, 0)
    return steps.own_ns[:, begin:end] if end - begin == places.size else steps.own_ns[:, places]


def _narrowed(values: Floats) -> NDArray[Any]:
    """The values less the least of them, in 32 bits where that and the sum of any two fits: they are sorted in half the time."""
    over: Floats = values - values.min()
    narrow = over.astype(np.int32) if over.max() < 1 << 30 else over
    return narrow if np.array_equal(narrow, over) else over


def _medians(rows: NDArray[Any]) -> Floats:
    """Of each row; numpy sorts short rows faster than it finds their middle."""
    ordered, count = np.sort(rows, axis=1), rows.shape[1]
    medians: Floats = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return medians


def _plain(rows: Sequence[Floats] | Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in rows)
