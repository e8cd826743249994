"""How unevenly ranks work, over a run and in its course: who needs longer by itself, in which part, and what the others wait for.

What a rank needs by itself is its step without exposed communication. On every rank but the slowest, exposed communication holds
the waiting for that one, on CUDA as on gloo: it lies between the end of the rank's own computation and the arrival of averaged
gradients. So step rows say who was waited for without the communication hook. One case hides from that: where a model has
buffers, DDP broadcasts those of rank 0 at the beginning of forward, and there the others wait for a rank 0 whose batch is late.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import Floats, RunSteps, median_step_ns
from hpcddp.core.records import PARTS

LEAST_STEPS = 20
"""With fewer, chance decides who is slow."""

RARE = 0.9
"""Quantile at which a step's waiting is cut for `often_ns`: what one step in ten does is a stall, and no habit of the ranks."""

OWN_PARTS = tuple(part for part in PARTS if part != "comm_exposed")

BY_BROADCAST = 0.5
"""Of what rank 0's data takes longer, the others' forward must be longer by more, for these to wait in its broadcast."""


@dataclass(frozen=True)
class Unevenness:
    """Of one run of several ranks, ns a step; `over`: beyond the median rank (of two in the middle the faster)."""

    hosts: tuple[str, ...]
    over_ns: tuple[float, ...]
    """By rank, in both halves of the run: the smaller of the two."""
    part_over_ns: Mapping[str, tuple[float, ...]]
    """Part -> by rank, over the whole run; of parts that all ranks measured."""
    waiting_ns: float
    """The mean over ranks and steps of how long a rank waits for the slowest one of the step, at least."""
    often_ns: float
    """The same, the rarest and longest waiting cut."""
    data_ns: float
    """By how much steps would be shorter if no rank ever waited for data: what the slowest ranks then need less."""


def unevenness(steps: RunSteps, hosts: Sequence[str]) -> Unevenness | None:
    """None for a single rank, for fewer than LEAST_STEPS, and where ranks did not measure their exposed communication."""
    own = steps.own_ns[:, steps.steady]
    count = own.shape[1]
    if len(hosts) < 2 or count < LEAST_STEPS or not np.isfinite(steps.rank_part_ns["comm_exposed"]).all():
        return None
    slowest = own.max(axis=0)
    waiting = slowest - own.mean(axis=0)
    halves = [_over(half.mean(axis=1)) for half in (own[:, : count // 2], own[:, count // 2 :])]
    parts = {part: _over(sums / count) for part in OWN_PARTS if np.isfinite(sums := steps.rank_part_ns[part]).all()}
    return Unevenness(
        hosts=tuple(hosts),
        over_ns=_plain(np.maximum(np.minimum(*halves), _late_data_of_rank_0(parts, len(hosts)))),
        part_over_ns={part: _plain(values) for part, values in parts.items()},
        waiting_ns=float(waiting.mean()),
        often_ns=float(np.minimum(waiting, np.quantile(waiting, RARE)).mean()),
        data_ns=max(0.0, float((slowest - steps.fed_ns[steps.steady]).mean())),
    )


def _over(values: Floats) -> Floats:
    over: Floats = values - np.sort(values)[(len(values) - 1) // 2]
    return over


def _late_data_of_rank_0(parts: Mapping[str, Floats], ranks: int) -> Floats:
    """What rank 0 waits for its data longer than the others, if these wait for it at its broadcast; 0 for all others."""
    late = np.zeros(ranks)
    if "data_wait" in parts and "forward" in parts:
        data, others_forward = parts["data_wait"][0], np.median(parts["forward"][1:]) - parts["forward"][0]
        late[0] = data if others_forward > BY_BROADCAST * data else 0.0
    return late


def _plain(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(map(float, values))


MOST_COLUMNS = 60
MOST_RANKS = 64
"""With more a row is a host: its slowest rank."""

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
    of the run's median step."""


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
        return RankMap(tuple(named), None, tuple(edges), tuple(map(_plain, by_host)))
    return RankMap(tuple(hosts), tuple(range(len(hosts))), tuple(edges), tuple(map(_plain, over)))


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
