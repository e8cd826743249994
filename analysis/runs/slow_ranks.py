"""How unevenly ranks work: who needs longer for a step by itself, in which part of it, and what the others wait for.

What a rank needs by itself is its step without exposed communication. On every rank but the slowest, exposed communication holds
the waiting for that one, on CUDA as on gloo: it lies between the end of the rank's own computation and the arrival of averaged
gradients. So step rows say who was waited for without the communication hook. One case hides from that: where a model has
buffers, DDP broadcasts those of rank 0 at the beginning of forward, and there the others wait for a rank 0 whose batch is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import Floats, RunSteps
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
    """Of one run of several ranks, in ns a step; `over` is what a rank needs more than the median one (of two in the middle the
    faster)."""

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
    """Each rank's value minus that of the median rank."""
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
