"""One pass over a data set's first samples: the batches that a run would train on are loaded, copied, and not trained on.

It is the loop of `measure.input: io`, with the same feed, clock and rows of steps.
"""

from __future__ import annotations

import contextlib
import gc
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from hpcddp.core.point import Point
from hpcddp.data import Source
from hpcddp.worker.data_bench.agreement import all_greatest, all_least
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import make_feed

PILOT_S = 0.5
"""How long is loaded to see how many steps a measurement will have."""

FIRST_BATCHES = 2
"""Of each loader process, not timed: those that it prepares while it starts, which then come all at once."""


@dataclass(frozen=True)
class Loaded:
    """What one pass came to, over all ranks."""

    steps: int
    took_s: float
    """On the slowest rank."""

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.took_s


def pilot_steps(group: ProcessGroup, point: Point, source: Source, seconds: float) -> int:
    """How many steps take so many seconds, the same number on all ranks; at most what an epoch has."""
    steps, took_s = _load(group, point, source, lambda steps, took_s: took_s >= min(PILOT_S, seconds))
    wanted = math.ceil(all_least(group, steps / took_s * seconds))
    processes = max(1, point.workload.loader_workers)
    epoch = len(source) // point.global_batch
    return max(1, min(math.ceil(wanted / processes) * processes, epoch - untimed_steps(point, epoch)))


def load_steps(group: ProcessGroup, point: Point, source: Source, steps: int) -> Loaded:
    """Loads the first so many steps of the first epoch; all ranks begin at the same time."""
    all_greatest(group, 0.0)
    _, took_s = _load(group, point, source, lambda done, _: done >= steps)
    return Loaded(steps, all_greatest(group, took_s))


def untimed_steps(point: Point, epoch_steps: int) -> int:
    """Before the timed ones; at most a third of an epoch."""
    return min(FIRST_BATCHES * max(1, point.workload.loader_workers), epoch_steps // 3)


def _load(group: ProcessGroup, point: Point, source: Source, is_over: Callable[[int, float], bool]) -> tuple[int, float]:
    """Timed steps on this rank, and the seconds they took."""
    untimed = untimed_steps(point, len(source) // point.global_batch)
    kind = group.device.type
    steps, begun_s, took_s = 0, time.perf_counter(), 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(make_feed(point, source, group)) as feed,
        StepLog(StepTimer(clock_for(kind)), Path(folder), group.rank.rank, buckets=False) as log,
    ):
        log.timer.restart()
        while not steps or not is_over(steps, took_s):
            feed.next(log.timer)
            log.write_finished()
            log.timer.mark("record")
            log.timer.close_step(0)
            if untimed:
                untimed -= 1
                begun_s = time.perf_counter()
            else:
                steps += 1
                took_s = time.perf_counter() - begun_s
        if kind == "cuda":
            torch.cuda.synchronize(group.device)
            took_s = time.perf_counter() - begun_s
    del feed
    gc.collect()  # loader processes end, and what they mapped is let go
    return steps, took_s
