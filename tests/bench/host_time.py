"""The host's time that measuring takes of a step, apart from what a model computes.

What the step clock and its files take, called as the loop calls them, records written and flushed, nothing else running between;
and what the hook and all rows add to a backward pass of four tiny buckets, beside what torch's own hook adds there, which
averages and records nothing.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.records import PARTS
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from tests.worker import forked

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
