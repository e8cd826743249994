"""What measuring costs a training step: `python -m tests.bench.step_overhead`.

Two figures. Host time: what the step clock and its files take, called as the loop calls them, and what hook and rows add to a
backward pass of four tiny buckets. And what a real step loses: train() as every run calls it against the shortest DDP loop
that trains the same, hand-written below, their steps taken in turns in the same process, a barrier before each. Where models lie
in memory makes one of two bare loops up to 1 % faster for as long as its process lives: pairs are taken in many processes,
every other one gives ours the model that was made first, and a line is the median of the processes' medians with its 95 %
interval. The lines `probe` have the bare loop on both sides, one of them under the probe.
What is freed is kept: else a step of the MNIST CNN takes 400 to 5,500 page faults, 36 to 47 ms, as whatever lies at the
heap's end when activations are freed decides, in the bare loop as in ours (alone in its process neither has more of them than
the other). The first line is such a pair of bare loops. A bound is judged only where the interval is narrower than the bound; all
figures are printed. All of it takes half an hour on two processors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.malloc import retain_freed_memory
from hpcddp.core.point import Data, Point
from hpcddp.core.records import PARTS
from hpcddp.data import Batch
from hpcddp.probe.loop_recorder import LoopRecorder
from hpcddp.probe.script_point import Wanted
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import Feed, ResidentFeed, first_batch
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import Trainer, make_trainer
from tests.worker import forked, given

HOST_BOUND_US = 10.0
BUCKET_BOUND_US = 10.0
TORCHS_US = 12.0
"""What torch's own hook adds for a bucket on the machine of these bounds; where it takes longer, so may ours."""
TIGHT_STEPS = 20_000


def host_time() -> dict[str, float]:
    """Microseconds of a step's marks, row and flushes (median of five rounds), and with the hook, with what it may take."""
    with tempfile.TemporaryDirectory() as folder:
        (hook,) = forked.values(Path(folder), 1, hook_time, Path(folder))
    bucket_us = BUCKET_BOUND_US * max(1.0, hook["torchs_us"] / hook["buckets"] / TORCHS_US)
    bound_us = HOST_BOUND_US + bucket_us * hook["buckets"]
    return {"step_us": statistics.median(tight_us() for _ in range(5)), **hook, "hook_bound_us": bound_us}


def tight_us() -> float:
    loss = torch.tensor(2.3)
    with tempfile.TemporaryDirectory() as folder, StepLog(StepTimer(HostClock()), Path(folder), 0, buckets=False) as log:
        begin = time.perf_counter()
        for _ in range(TIGHT_STEPS):
            for part in PARTS[:-2]:
                log.timer.mark(part)
            log.write_finished()
            log.timer.mark("record")
            log.timer.loss(loss)
            log.timer.close_step(0)
        log.pause()
        return (time.perf_counter() - begin) / TIGHT_STEPS * 1e6


def hook_time(folder: Path) -> dict[str, float]:
    """Backward passes of tiny layers, a bucket each, without a hook, with torch's and with ours in random order: what each adds.

    Our hook's rows are written and flushed in that time. One rank makes no pass over its gradients, and none is allowed for.
    Torch's hook gains from the thread states that ours keeps for gloo's threads, which lowers what ours is allowed.
    """
    group = join(this_rank("local"), "cpu")
    models = [DistributedDataParallel(tiny_layers(), bucket_cap_mb=0.001) for _ in range(3)]
    _, torchs, ours = models
    torchs.register_comm_hook(None, allreduce_hook)
    draw, batch = random.Random(1), torch.ones(1, 16)
    times_s: dict[nn.Module, list[float]] = {model: [] for model in models}
    with StepLog(StepTimer(HostClock()), folder / "records", 0, buckets=True) as log:
        time_buckets(ours, log.timer)
        for _ in range(TIGHT_STEPS // 4):
            model = draw.choice(models)
            times_s[model].append(backward_s(model, batch) + (logged_s(log) if model is ours else 0.0))
    buckets = log.counts()["bucket_rows"] / log.counts()["rows"]
    group.leave()
    plain_s, torchs_s, ours_s = (statistics.median(times_s[model]) for model in models)
    return {"buckets": buckets, "hook_us": (ours_s - plain_s) * 1e6, "torchs_us": (torchs_s - plain_s) * 1e6}


def logged_s(log: StepLog) -> float:
    begin = time.perf_counter()
    log.timer.close_step(0)
    log.write_finished()
    return time.perf_counter() - begin


def tiny_layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))


def backward_s(model: nn.Module, batch: torch.Tensor) -> float:
    loss: torch.Tensor = model(batch).sum()
    begin = time.perf_counter()
    loss.backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - begin


SHARE_BOUND_PERCENT = 1.0
WARMUP = 10
LINES: tuple[tuple[str, int, bool | str | None], ...] = (
    ("mnist-cnn", 1, None),
    *((model, ranks, hook) for model in ("mnist-cnn", "resnet18") for ranks in (1, 2) for hook in (False, True, "probe")),
)
"""Model, ranks, and whether with the hook; None: two bare loops; `probe`: the bare loop, and the same under the probe."""

PAIRS = {"mnist-cnn": (30, 40), "resnet18": (10, 20)}
"""Processes, and pairs in each."""

HOOK: dict[bool | str | None, str] = {None: "bare", False: "off", True: "on", "probe": "probe"}

KINDS = ("steps", "buckets")

BATCH = {"mnist-cnn": 64, "resnet18": 8}
DATA = {"mnist-cnn": "synthetic-mnist", "resnet18": "synthetic-cifar10"}


@dataclass(frozen=True)
class Pairs:
    """Of one process: medians of the bare step and of what the other one took more, in seconds."""

    bare_s: float
    added_s: float


def figures(processes: Sequence[Pairs]) -> dict[str, float]:
    """Medians over processes, of the difference with its 95 % interval (order statistics)."""
    added_s = sorted(pairs.added_s for pairs in processes)
    n = len(added_s)
    below = max(0, math.floor(n / 2 - 1.96 * math.sqrt(n) / 2))
    bare_s = statistics.median(pairs.bare_s for pairs in processes)
    found = {"bare_ms": bare_s * 1e3, "added_us": statistics.median(added_s) * 1e6}
    return found | {
        "added_percent": 100 * statistics.median(added_s) / bare_s,
        "low_percent": 100 * added_s[below] / bare_s,
        "high_percent": 100 * added_s[n - 1 - below] / bare_s,
    }


class AlternatingFeed:
    """Gives train() its one batch, and takes a bare step whenever it is asked for the next one."""

    def __init__(self, inner: Feed, bare: Callable[[Batch], None], batch: Batch) -> None:
        self.plan, self.watch = inner.plan, inner.watch
        self._bare, self._batch = bare, batch
        self._began_s = 0.0
        self.bare_s: list[float] = []
        self.ours_s: list[float] = []

    def next(self, timer: StepTimer) -> Batch:
        if self._began_s:
            self.ours_s.append(time.perf_counter() - self._began_s)
        dist.barrier()
        begin = time.perf_counter()
        self._bare(self._batch)
        self.bare_s.append(time.perf_counter() - begin)
        dist.barrier()
        self._began_s = time.perf_counter()
        timer.mark("data_wait")
        timer.mark("h2d_exposed")
        return self._batch

    def close(self) -> None: ...


def main() -> int:
    """Prints the tables and one line of JSON; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of processes, for a quick look")
    share = parser.parse_args().share
    host = host_time()
    print(f"host time of a step: {host['step_us']:.1f} us, at most {HOST_BOUND_US:.0f}")
    print(
        f"with the hook: {host['hook_us']:.1f} us for {host['buckets']:.0f} buckets, at most {host['hook_bound_us']:.1f}", end=" "
    )
    usual_us = HOST_BOUND_US + BUCKET_BOUND_US * host["buckets"]
    print(f"where torch's own takes {host['torchs_us']:.1f} ({usual_us:.1f} where that is {TORCHS_US:.0f} a bucket or less)")
    print("model      ranks  hook   bare ms   added us  added %   95 % interval    pairs", flush=True)
    rows = []
    for model, ranks, hook in LINES:
        rows.append(compared(model, ranks, hook, share))
        print(line(rows[-1]), flush=True)
    result = summary(host, rows)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def compared(model: str, ranks: int, hook: bool | str | None, share: float) -> dict[str, Any]:
    """One line of the table, by rank 0's steps."""
    processes, pairs = PAIRS[model]
    point = given.point(ranks, warmup=WARMUP, steps=pairs, model=model, data=Data(name=DATA[model]), batch_per_gpu=BATCH[model])
    taken: list[Pairs] = []
    exchanged: dict[str, float] = {}
    for number in range(max(4, round(share * processes))):
        with tempfile.TemporaryDirectory() as folder:
            arguments = (point, Path(folder), hook, number % 2 == 0)
            of_rank_0, exchanged = forked.values(Path(folder), ranks, alternating, *arguments, timeout_s=900.0)[0]
        taken.append(of_rank_0)
    return {"model": model, "ranks": ranks, "hook": hook, "pairs": len(taken) * pairs, **figures(taken), **exchanged}


def alternating(point: Point, folder: Path, hook: bool | str | None, ours_first: bool) -> tuple[Pairs, dict[str, float]]:
    """In a rank: train() against the bare loop, and the `buckets` of a step and `pass_us` over gradients to be averaged."""
    if not retain_freed_memory():
        sys.exit("this bench needs glibc: without keeping memory the MNIST CNN takes thousands of page faults a step")
    group = join(this_rank("local"), "cpu")
    source = given.cifar(256) if point.workload.model == "resnet18" else given.mnist(256)
    trainers = [make_trainer(point.workload, source, group.device, group.rank.rank) for _ in range(2)]
    ours, bare = trainers if ours_first else reversed(trainers)
    batch = first_batch(point, source, group)
    feed = AlternatingFeed(ResidentFeed(batch, EpochPlan(1000 * len(batch[1]), len(batch[1]))), bare_loop(bare), batch)
    bare.model.train()
    buckets = 0
    if hook is None:
        train_barely(point, ours, feed)
    elif hook == "probe":
        buckets = train_under_probe(point, ours, feed, folder / "runs")
    else:
        log = StepLog(StepTimer(HostClock()), folder / "records", group.rank.rank, buckets=bool(hook))
        if hook and ours.ddp:
            time_buckets(ours.ddp, log.timer)
        trained = train(point, ours, feed, log, group)
        buckets = round((trained.bucket_rows or 0) / trained.rows)
    group.leave()
    steady = slice(WARMUP + 1, len(feed.ours_s))
    pairs = list(zip(feed.bare_s[steady], feed.ours_s[steady], strict=True))
    medians = Pairs(statistics.median(a for a, _ in pairs), statistics.median(b - a for a, b in pairs))
    passed_bytes = sum(parameter.nbytes for parameter in ours.module.parameters()) if point.ranks > 1 else 0
    return medians, {"buckets": buckets, "pass_us": pass_us(passed_bytes)}


def train_barely(point: Point, trainer: Trainer, feed: Feed) -> None:
    """As many steps as train() makes."""
    step, timer = bare_loop(trainer), StepTimer(HostClock())
    trainer.model.train()
    for _ in range(WARMUP + point.measure.steps):
        step(feed.next(timer))


def train_under_probe(point: Point, trainer: Trainer, feed: Feed, runs: Path) -> int:
    """The same, its steps recorded; the buckets of one. The feed stands where `steps(loader)` gives a batch, after its mark."""
    os.environ["HPCDDP_RUNS"] = str(runs)
    wanted = Wanted(
        samples_per_step=point.workload.batch_per_gpu,
        iterations_per_step=1,
        warmup_steps=WARMUP,
        steps=point.measure.steps,
        tokens_per_step=None,
        flops_per_step=None,
    )
    recorder, step, unused = LoopRecorder(trainer.model, [trainer.optimizer], wanted), bare_loop(trainer), StepTimer(HostClock())
    recorder.start()
    trainer.model.train()
    enough = False
    while not enough:
        batch = feed.next(unused)
        recorder.begin_batch()
        step(batch)
        recorder.end_batch()
        enough = recorder.end_step()
    feed.next(unused)
    recorder.finish()
    rank = int(os.environ["SUBMITIT_LOCAL_GLOBALID"])
    rows = {name: sum(file.read_text().count("\n") - 1 for file in runs.glob(f"**/{rank:05d}.{name}.csv")) for name in KINDS}
    return round(rows["buckets"] / rows["steps"])


def bare_loop(trainer: Trainer) -> Callable[[Batch], None]:
    """The shortest loop that trains the same: nothing but torch's own calls."""
    model, optimizer, normalize = trainer.model, trainer.optimizer, trainer.normalize

    def step(batch: Batch) -> None:
        images, labels = batch
        loss = nn.functional.cross_entropy(model(normalize(images)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def pass_us(size_bytes: int) -> float:
    """One multiplication in place over that many bytes of float32: median of 21."""
    gradients, times_s = torch.ones(size_bytes // 4), []
    for _ in range(21):
        begin = time.perf_counter()
        gradients.mul_(1.0)
        times_s.append(time.perf_counter() - begin)
    return statistics.median(times_s) * 1e6


def allowed_percent(row: dict[str, Any]) -> float:
    """1 % of the step; with the hook, what it may take if that is more: 10 us, 10 us a bucket and one pass over the gradients."""
    if not row["hook"]:
        return SHARE_BOUND_PERCENT
    allowed_us = HOST_BOUND_US + BUCKET_BOUND_US * row["buckets"] + row["pass_us"]
    share: float = 100 * allowed_us / (row["bare_ms"] * 1e3)
    return max(SHARE_BOUND_PERCENT, share)


def line(row: dict[str, Any]) -> str:
    interval = f"{row['low_percent']:+.2f} to {row['high_percent']:+.2f}"
    times = f"{row['bare_ms']:8.2f}   {row['added_us']:8.0f}  {row['added_percent']:+7.2f}   {interval:<16} {row['pairs']:5d}"
    return f"{row['model']:<10} {row['ranks']:5d}  {HOOK[row['hook']]:<4} {times}"


def summary(host: dict[str, float], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A bound fails where the whole interval lies above it, and holds where it lies below; between, it is not resolved."""
    for row in rows:
        bound = row["bound_percent"] = allowed_percent(row)
        row["holds"] = True if row["high_percent"] <= bound else False if row["low_percent"] > bound else None
    rounded = [{key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()} for row in rows]
    host_holds = host["step_us"] <= HOST_BOUND_US and host["hook_us"] <= host["hook_bound_us"]
    return {
        "bench": "step_overhead",
        "host": {key: round(value, 2) for key, value in host.items()} | {"bound_us": HOST_BOUND_US, "holds": host_holds},
        "steps": rounded,
        "holds": host_holds and all(row["holds"] is not False for row in rows),
    }


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
