"""What measuring costs a step on a GPU: `python -m tests.bench.gpu_step`, the last part of `make gpu`.

ResNet-50 in bf16 and channels_last on one GPU, with and without torch.compile: train() as every run calls it, without and with
the communication hook, against the shortest loop that trains the same through DDP, in blocks of BLOCK steps that alternate in
one process, the GPU idle at the beginning and the end of each. A line is the median over blocks of what a step takes more, with
its 95 % interval (order statistics). Two lines compare loops that are both hand-written: equal ones, which is how well the
others are known, and one with torch's fused optimizer, which is what its defaults cost.

With HOST_BATCH samples the GPU waits for the host: what a step takes more is then the host's time for measuring it.

A bound is judged only where the interval is narrower than the bound. Without a GPU it says so and ends with 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpcddp.core.catalog import dataset_facts
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.point import Data, Point
from hpcddp.data import Batch
from hpcddp.data.synthetic import SyntheticSource
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.losses import loss_reader_for
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import Feed, ResidentFeed, first_batch
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import Trainer, apply_settings, make_trainer
from tests.bench.step_overhead import Pairs, figures
from tests.gpu.device import is_real, machine_facts
from tests.gpu.ranks import values
from tests.gpu.results import append_result
from tests.gpu.start import add_options, start
from tests.worker import given

SHARE_BOUND_PERCENT = 2.0
"""Twice that of a processor: eight events are recorded and read in a step, some microseconds each, and with the hook the
all-reduce of every bucket is begun and awaited from Python."""

HOST_BOUND_US = 100.0
"""SHARE_BOUND_PERCENT of 5 ms: no batch that fills a GPU lets ResNet-50 make a step in less."""

BLOCK = 10
"""Steps: filling and emptying the GPU's queue is shared by all of them, and alike for both."""

WARMUP_BLOCKS = 2
BLOCKS = 12

HOST_BATCH = 2

SMALL_GPU_BYTES = 20 * 2**30
"""With less memory a batch of 32 instead of 128."""

LINES = (
    *(("equal", False), ("fused", False), ("off", False), ("on", False), ("off", True), ("on", True)),
    *(("host off", False), ("host on", False)),
)
"""The other loop, and whether both are compiled: `off` and `on` are train() without and with the hook."""


class BlocksFeed:
    """Gives train() its one batch, and makes BLOCK bare steps before each BLOCK of its own."""

    def __init__(self, inner: Feed, bare: Callable[[Batch], None], batch: Batch) -> None:
        self.plan, self.watch = inner.plan, inner.watch
        self._bare, self._batch = bare, batch
        self._steps = 0
        self._began_s = 0.0
        self.pairs: list[tuple[float, float]] = []
        """Seconds a step, of a bare block and of the other loop's after it."""
        self._bare_s = 0.0

    def next(self, timer: StepTimer) -> Batch:
        if self._steps % BLOCK == 0:
            self._next_block()
        self._steps += 1
        timer.mark("data_wait")
        timer.mark("h2d_exposed")
        return self._batch

    def close(self) -> None: ...

    def _next_block(self) -> None:
        now_s = idle_s()
        if self._began_s:
            self.pairs.append((self._bare_s, (now_s - self._began_s) / BLOCK))
        began_s = idle_s()
        for _ in range(BLOCK):
            self._bare(self._batch)
        self._began_s = idle_s()
        self._bare_s = (self._began_s - began_s) / BLOCK


def idle_s() -> float:
    """The time, when the GPU has nothing left to do."""
    torch.cuda.synchronize(torch.device("cuda", 0))
    return time.perf_counter()


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    if not start(parser.parse_args()):
        return 0
    print("loop      compiled   bare ms   added us  added %   95 % interval    blocks", flush=True)
    rows = []
    for loop, compiled in LINES:
        rows.append(compared(loop, compiled))
        print(line(rows[-1]), flush=True)
    result = summary(rows)
    print(json.dumps(result))
    append_result(as_result(result))
    return 0 if result["holds"] or not is_real() else 1


def compared(loop: str, compiled: bool) -> dict[str, Any]:
    """One line of the table."""
    what = point(compiled, host_bound=loop.startswith("host"))
    with tempfile.TemporaryDirectory() as folder:
        (pairs,) = values(Path(folder), 1, alternate, what, Path(folder), loop.removeprefix("host "), timeout_s=480.0)
    found = figures([Pairs(bare_s, other_s - bare_s) for bare_s, other_s in pairs])
    return {"loop": loop, "compiled": compiled, "batch": what.workload.batch_per_gpu, "blocks": len(pairs), **found}


def point(compiled: bool, *, host_bound: bool) -> Point:
    """One rank; on the stand-in of a size that a processor soon has done."""
    warmup, steps = BLOCK * WARMUP_BLOCKS, BLOCK * BLOCKS
    if not is_real():
        small: dict[str, Any] = {"model": "mnist-cnn", "data": Data(name="synthetic-mnist"), "batch_per_gpu": 2}
        return given.point(1, device="cuda", warmup=BLOCK, steps=4 * BLOCK, compile=compiled, precision="bf16", **small)
    memory_bytes = min(gpu["memory_bytes"] for gpu in machine_facts()["gpus"])
    batch = HOST_BATCH if host_bound else 32 if memory_bytes < SMALL_GPU_BYTES else 128
    known: dict[str, Any] = {"model": "resnet50", "data": Data(name="synthetic-imagenet")}
    known |= {"precision": "bf16", "channels_last": True, "batch_per_gpu": batch}
    return given.point(1, device="cuda", warmup=warmup, steps=steps, compile=compiled, **known)


def alternate(what: Point, folder: Path, loop: str) -> list[tuple[float, float]]:
    """In the rank: seconds of a bare step and of one of the other loop, block by block."""
    apply_settings(what.workload)
    group = join(this_rank("local"), "cuda")
    facts = dataset_facts(what.workload.data)
    assert facts
    source = SyntheticSource(facts, "train")
    bare, other = (make_trainer(what.workload, source, group.device, 0) for _ in range(2))
    batch = first_batch(what, source, group)
    for trainer in (bare, other):
        trainer.model.train()
    feed = BlocksFeed(ResidentFeed(batch, EpochPlan(10_000 * len(batch[1]), len(batch[1]))), bare_loop(bare), batch)
    timer: StepTimer = StepTimer(clock_for("cuda"), losses=loss_reader_for("cuda"))
    if loop in ("equal", "fused"):
        step = bare_loop(with_fused_optimizer(other) if loop == "fused" else other)
        for _ in range(what.measure.warmup_steps + what.measure.steps):
            step(feed.next(timer))
    else:
        log = StepLog(timer, folder / "records", 0, buckets=loop == "on")
        if loop == "on" and other.ddp:
            time_buckets(other.ddp, timer)
        train(what, other, feed, log, group)
    group.leave()
    return feed.pairs[what.measure.warmup_steps // BLOCK :]


def bare_loop(trainer: Trainer) -> Callable[[Batch], None]:
    """The shortest loop that trains the same: nothing but torch's own calls."""
    model, optimizer, normalize, device = trainer.model, trainer.optimizer, trainer.normalize, trainer.device.type

    def step(batch: Batch) -> None:
        images, labels = batch
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(normalize(images)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def with_fused_optimizer(trainer: Trainer) -> Trainer:
    (group,) = trainer.optimizer.param_groups
    fused = torch.optim.SGD(
        group["params"], group["lr"], momentum=group["momentum"], weight_decay=group["weight_decay"], fused=True
    )
    return dataclasses.replace(trainer, optimizer=fused)


def line(row: dict[str, Any]) -> str:
    interval = f"{row['low_percent']:+.2f} to {row['high_percent']:+.2f}"
    times = f"{row['bare_ms']:8.3f}   {row['added_us']:8.0f}  {row['added_percent']:+7.2f}   {interval:<16} {row['blocks']:6d}"
    return f"{row['loop']:<9} {'yes' if row['compiled'] else 'no':<8} {times}"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A bound fails where the whole interval lies above it, and holds where it lies below; between, it is not resolved."""
    for row in rows:
        row["images_per_s"] = row["batch"] / row["bare_ms"] * 1e3
        bound = row["bound_percent"] = bound_percent(row)
        row["holds"] = None if bound is None else _holds(row, bound)
    rounded = [{key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()} for row in rows]
    hook_us = _added_us(rows, "host on") - _added_us(rows, "host off")
    return {
        "bench": "gpu_step",
        "host_us": round(_added_us(rows, "host off"), 1),
        "hook_us": round(hook_us, 1),
        "steps": rounded,
        "holds": all(row["holds"] is not False for row in rows),
    }


def _holds(row: dict[str, Any], bound: float) -> bool | None:
    return True if row["high_percent"] <= bound else False if row["low_percent"] > bound else None


def bound_percent(row: dict[str, Any]) -> float | None:
    """None for lines that only tell: two bare loops, and the hook's own time, which depends on the number of buckets."""
    if row["loop"] == "host off":
        return float(100 * HOST_BOUND_US / (row["bare_ms"] * 1e3))
    return SHARE_BOUND_PERCENT if row["loop"] in ("off", "on") else None


def _added_us(rows: list[dict[str, Any]], loop: str) -> float:
    (row,) = (row for row in rows if row["loop"] == loop)
    return float(row["added_us"])


def as_result(result: dict[str, Any]) -> dict[str, Any]:
    """A line of the results."""
    found = {"host_us": {"value": result["host_us"], "most": HOST_BOUND_US}, "hook_us": {"value": result["hook_us"]}}
    for row in result["steps"]:
        name = f"{row['loop'].replace(' ', '_')}{'_compiled' if row['compiled'] else ''}"
        found[f"{name}_added_percent"] = {"value": row["added_percent"], "low": row["low_percent"], "high": row["high_percent"]}
        found[f"{name}_bare_images_per_s"] = {"value": row["images_per_s"]}
        if row["bound_percent"] is not None:
            found[f"{name}_added_percent"]["most"] = row["bound_percent"]
    return {"test": "bench gpu_step", "outcome": "passed" if result["holds"] else "failed", "reason": None, "figures": found}


if __name__ == "__main__":
    sys.exit(main())
