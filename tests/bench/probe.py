"""Whether the probe finds in a user's own loop what hpcddp's own loop finds in its own: `python -m tests.bench.probe`.

The same training twice, steps taken in turns in the same ranks: the MNIST CNN on one resident batch, AdamW with two groups of
parameters, four micro-batches a step of which the last exchanges, DDP on two gloo ranks; once by the worker's train(), once by a
loop with a loss of its own, under the probe, which says by hand that clearing gradients belongs to the optimizer. Both write rows
and buckets; the wait for data holds the other's step, and is left out. Where models lie in memory makes one of two equal loops up
to 1 % faster for as long as its process lives: every other process makes the probe's model first. Each figure is the median over
processes of probe / worker, of medians over timed steps, mean over ranks.

And whether a rate over epochs is that of a clock of the script's own: the loops of tests/probe/clocked.py on 1, 2 and 4 gloo
ranks, with and without an evaluation and a checkpoint behind each epoch; the median over measurements of what `analyze` shows /
samples by the clock, less 1.
"""

from __future__ import annotations

import argparse
import copy
import csv
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.malloc import retain_freed_memory
from hpcddp.core.point import Data, Optimizer, Point
from hpcddp.core.records import buckets_file, steps_file
from hpcddp.data import Batch
from hpcddp.probe.loop_recorder import LoopRecorder
from hpcddp.probe.measurement import Measurement
from hpcddp.probe.script_point import Wanted
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import ResidentFeed, first_batch
from hpcddp.worker.training.optimizers import make_optimizer
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import Trainer, make_trainer
from tests.bench.step_overhead import AlternatingFeed
from tests.probe.clocked import WAYS, rate_by_clock
from tests.worker import forked, given

EPOCH_RANKS = (1, 2, 4)
EPOCH_BOUND_PERCENT = 1.0
MEASUREMENTS = 3


def over_epochs() -> dict[str, object]:
    """Prints a line for each way of looping."""
    print(f"{'loop':<13} {'ranks':>5} {'evaluates':>9} {'median':>8}   from to")
    worst_percent = 0.0
    for way, ranks, evaluates in itertools.product(WAYS, EPOCH_RANKS, (False, True)):
        off_percent = [100 * (rate_by_clock(way, ranks, evaluates) - 1) for _ in range(MEASUREMENTS)]
        median = statistics.median(off_percent)
        worst_percent = max(worst_percent, abs(median))
        spread = f"{min(off_percent):+.2f} {max(off_percent):+.2f}"
        print(f"{way:<13} {ranks:>5} {'yes' if evaluates else 'no':>9} {median:+7.2f}%   {spread}", flush=True)
    holds = worst_percent <= EPOCH_BOUND_PERCENT
    return {"bench": "probe_epochs", "worst_percent": round(worst_percent, 2), "holds": holds}


RANKS, WARMUP, STEPS, ACCUMULATE, BATCH = 2, 20, 120, 4, 64
BOUND = 0.02
PARTS = ("forward", "backward", "comm_exposed", "optimizer")
PROCESSES = 16


def point() -> Point:
    """What both train."""
    chosen = Optimizer(name="adamw", lr=1e-3, weight_decay=1e-2, weight_decay_on="weights")
    work: dict[str, Any] = {
        "data": Data(name="synthetic-mnist"),
        "batch_per_gpu": BATCH,
        "accumulate": ACCUMULATE,
        "optimizer": chosen,
    }
    return given.point(RANKS, warmup=WARMUP, steps=STEPS, measure={"comm": "on"}, **work)


class Normalized(nn.Module):
    """The model with what hpcddp does to its pictures, as a user would have it."""

    def __init__(self, normalize: Callable[[torch.Tensor], torch.Tensor], model: nn.Module) -> None:
        super().__init__()
        self.normalize, self.model = normalize, model

    def forward(self, images: torch.Tensor) -> Any:
        return self.model(self.normalize(images))


def own_step(trainer: Trainer, folder: Path) -> tuple[LoopRecorder, Callable[[Batch], None]]:
    """A user's loop, a step at a call, and what records it: as `steps(loader)` does."""
    os.environ["HPCDDP_RUNS"] = str(folder)
    module = copy.deepcopy(trainer.module).train()
    model: Any = DistributedDataParallel(Normalized(trainer.normalize, module))
    optimizer = make_optimizer(point().workload.optimizer, module)
    wanted = Wanted(
        samples_per_step=BATCH, iterations_per_step=1, warmup_steps=WARMUP, steps=STEPS, tokens_per_step=None, flops_per_step=None
    )
    steps = Measurement(model, [optimizer], wanted)
    recorder = steps.__enter__()._recorder

    def step(batch: Batch) -> None:
        recorder.begin_batch()
        micro = list(zip(*(part.chunk(ACCUMULATE) for part in batch), strict=True))
        losses = []
        for number, (images, labels) in enumerate(micro, start=1):
            model.require_backward_grad_sync = number == len(micro)
            loss = nn.functional.cross_entropy(model(images), labels) / ACCUMULATE
            steps.mark("forward")
            losses.append(loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
        steps.loss(torch.stack(losses).sum())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.mark("optimizer")
        recorder.end_batch()
        recorder.end_step()

    return recorder, step


def alternating_steps(folder: Path, probe_first: bool) -> tuple[dict[str, float], dict[str, float]]:
    """In a rank: medians of the worker's steps, and of the probe's."""
    if not retain_freed_memory():
        sys.exit("this bench needs glibc: without keeping memory page faults are what is compared")
    what, group = point(), join(this_rank("local"), "cpu")
    source = given.mnist(256)
    trainers = [make_trainer(what.workload, source, group.device, group.rank.rank) for _ in range(2)]
    probes, workers = trainers if probe_first else reversed(trainers)
    batch = first_batch(what, source, group)
    recorder, step = own_step(probes, folder / "runs")
    feed = AlternatingFeed(ResidentFeed(batch, EpochPlan(1000 * BATCH, BATCH)), step, batch)
    log = StepLog(StepTimer(HostClock()), folder / "records", group.rank.rank, buckets=True)
    assert workers.ddp is not None
    time_buckets(workers.ddp, log.timer)
    train(what, workers, feed, log, group)
    recorder.finish()
    group.leave()
    (attempt,) = {file.parent.parent for file in (folder / "runs").glob("**/*.steps.csv")}
    return medians(folder / "records", group.rank.rank), medians(attempt, group.rank.rank)


def medians(attempt: Path, rank: int) -> dict[str, float]:
    """ms of a step without its wait for data, of its parts and of its buckets, over timed steps."""
    rows = [row for row in _rows(steps_file(attempt, rank)) if row["flags"] == "0"]
    found = {"step": statistics.median(int(row["total_ns"]) - int(row["data_wait_ns"]) for row in rows)}
    found |= {part: statistics.median(int(row[f"{part}_ns"]) for row in rows) for part in PARTS}
    timed = {row["step"] for row in rows}
    buckets = [row for row in _rows(buckets_file(attempt, rank)) if row["step"] in timed]
    found["bucket"] = statistics.median(int(row["done_ns"]) - int(row["ready_ns"]) for row in buckets)
    return {name: ns / 1e6 for name, ns in found.items()}


def _mean(of_ranks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(found[name] for found in of_ranks) for name in of_ranks[0]}


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    pairs = []
    for number in range(parser.parse_args().processes):
        with tempfile.TemporaryDirectory() as folder:
            of_ranks = forked.values(Path(folder), RANKS, alternating_steps, Path(folder), number % 2 == 0, timeout_s=600.0)
        pairs.append(tuple(_mean([of_rank[side] for of_rank in of_ranks]) for side in (0, 1)))
    print(f"{'part':<13} {'worker ms':>9} {'probe ms':>9} {'ratio':>7}   95 % interval")
    figures = {name: ratio(name, pairs) for name in pairs[0][0]}
    for name, found in figures.items():
        worker_ms, probe_ms = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        print(f"{name:<13} {worker_ms:9.3f} {probe_ms:9.3f} {found['ratio']:7.3f}   {found['low']:.3f} to {found['high']:.3f}")
    holds = all(found["holds"] is not False for found in figures.values())
    print(json.dumps({"bench": "probe", "figures": figures, "bound": BOUND, "holds": holds}))
    of_epochs = over_epochs()
    print(json.dumps(of_epochs))
    return 0 if holds and of_epochs["holds"] else 1


def ratio(name: str, pairs: Sequence[tuple[dict[str, float], ...]]) -> dict[str, Any]:
    """Median over processes with its interval (order statistics). It fails where all of that lies off 1 by more than the bound,
    and holds where all lies within; between (None), it is not resolved.
    """
    ratios = sorted(probe[name] / worker[name] for worker, probe in pairs)
    below = max(0, math.floor(len(ratios) / 2 - 1.96 * math.sqrt(len(ratios)) / 2))
    low, high = ratios[below], ratios[-1 - below]
    holds = True if 1 - BOUND <= low <= high <= 1 + BOUND else False if low > 1 + BOUND or high < 1 - BOUND else None
    return {"ratio": round(statistics.median(ratios), 4), "low": round(low, 4), "high": round(high, 4), "holds": holds}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
