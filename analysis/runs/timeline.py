"""One step of a run, the one nearest to its median: what every rank did when, and when each bucket of gradients travelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpcddp.analysis.records.steps import RunSteps, median_step_ns


@dataclass(frozen=True)
class RankStep:
    """One rank's step; with `accumulate` its parts are sums over micro-batches, which in truth alternate."""

    rank: int
    host: str
    start_ns: int
    """After the first rank's start."""
    parts_ns: tuple[tuple[str, int], ...]
    """Those that were measured, in the order they happen."""

    @property
    def own_ns(self) -> int:
        """All but exposed communication."""
        return sum(ns for part, ns in self.parts_ns if part != "comm_exposed")


@dataclass(frozen=True)
class BucketStep:
    """One all-reduce, in ns after the first rank's start. It travels from the last rank's readiness."""

    index: int
    size_bytes: int
    first_ready_ns: int
    last_ready_ns: int
    done_ns: int
    """On the last rank."""


@dataclass(frozen=True)
class Timeline:
    """All on rank 0's clock; where offsets between clocks are not known (not `aligned`) every rank begins at 0."""

    step: int
    step_ns: int
    """The mean over ranks; with known clocks and all-reduces, between boundaries that all ranks share."""
    aligned: bool
    ranks: tuple[RankStep, ...]
    buckets: tuple[BucketStep, ...]


def typical_steps(steps: RunSteps) -> Iterator[int]:
    """Places of the timed steps, sorted by how near their length is to the median; of equals the earliest first."""
    middle = median_step_ns(steps)
    places = np.flatnonzero(steps.steady)
    if middle is not None:
        yield from map(int, places[np.argsort(np.abs(steps.step_ns[places] - middle), kind="stable")])
