"""What measuring costs a step on a GPU: `python -m tests.bench.gpu_step`, the last part of `make gpu`.

ResNet-50 in bf16 and channels_last on one GPU, with and without torch.compile: train() as every run calls it, without and with
the communication hook, against the shortest loop that trains the same through DDP, in blocks of BLOCK steps that alternate in
one process, the GPU idle at the beginning and the end of each. A line is the median over blocks of what a step takes more, with
its 95 % interval (order statistics). Two lines compare loops that are both hand-written: equal ones, which is how well the
others are known, and one with torch's fused optimizer, which is what its defaults cost. The line `best` is train() at its fastest
on one GPU (compiled, without DDP, batches that fill it) against the best minimal loop, which has the fused optimizer, too: it
trains no less than BEST_SHARE_PERCENT of the images. What that is of the card's peak, and of what MLPerf's submissions reached on
it, stands beside it.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpcddp.core.catalog import dataset_facts
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.gpu_peaks import peak_flops_per_s
from hpcddp.core.point import Data, Point
from hpcddp.data import Batch
from hpcddp.data.opening import SyntheticSource
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer, loss_reader_for
from hpcddp.worker.training.feeds import Feed, ResidentFeed, first_batch
from hpcddp.worker.training.models import flops_per_sample
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import Trainer, apply_settings, make_trainer
from tests.bench.step_overhead import Pairs, figures
from tests.gpu.device import add_options, append_result, is_real, machine_facts, start
from tests.gpu.ranks import values
from tests.worker import given

SHARE_BOUND_PERCENT = 2.0
"""Twice that of a processor: eight events are recorded and read in a step, some microseconds each, and with the hook the
all-reduce of every bucket is begun and awaited from Python."""

HOST_BOUND_US = 100.0
"""SHARE_BOUND_PERCENT of 5 ms: no batch that fills a GPU lets ResNet-50 make a step in less."""

HOST_AIM_US = 20.0
BUCKET_AIM_US = 10.0
"""What a step's and a bucket's measuring should take of the host; beyond an aim nothing fails."""

BEST_SHARE_PERCENT = 97.0

MLPERF = {"H200": 7950.0, "H100 80GB HBM3": 7162.0, "A100-SXM4-80GB": 3574.0}
"""Images per second and GPU of ResNet-50 on ImageNet, submissions to MLPerf Training 3.0 and 4.0 with eight GPUs a node: DALI's
loader, NVIDIA's own kernels and larger batches. A ceiling, which a loop of PyTorch's operators does not reach."""

BLOCK = 10
"""Steps: filling and emptying the GPU's queue is shared by all of them, and alike for both."""

WARMUP_BLOCKS = 2
BLOCKS = 12

HOST_BATCH = 2

SMALL_GPU_BYTES = 20 * 2**30
"""With less memory a batch of 32 instead of 128."""

LARGE_GPU_BYTES = 40 * 2**30
"""From this on `best` has batches of 256."""

LINES = (
    *(("equal", False), ("fused", False), ("off", False), ("on", False), ("off", True), ("on", True)),
    *(("host off", False), ("host on", False), ("best", True)),
)
"""The other loop, and whether both are compiled: `off` and `on` are train() without and with the hook."""


@dataclass(frozen=True)
class Alternated:
    """What a rank gives of a line: seconds of a bare step and of one of the other loop, block by block."""

    pairs: list[tuple[float, float]]
    flops_per_sample: int | None
    buckets: int
    """Of a step of train()."""


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
    of_hook = f"the hook's {result['hook_us']} us more (aim {result['hook_aim_us']:.0f})"
    print(f"host time of a step {result['host_us']} us (aim {HOST_AIM_US:.0f}), {of_hook}")
    print(best_line(result["best"]))
    print(json.dumps(result))
    append_result(as_result(result))
    return 0 if result["holds"] or not is_real() else 1


def compared(loop: str, compiled: bool) -> dict[str, Any]:
    """One line of the table."""
    what = point(loop, compiled)
    with tempfile.TemporaryDirectory() as folder:
        (found,) = values(Path(folder), 1, alternate, what, Path(folder), loop.removeprefix("host "), timeout_s=480.0)
    known = {"batch": what.workload.batch_per_gpu, "blocks": len(found.pairs), "buckets": found.buckets}
    timed = figures([Pairs(bare_s, other_s - bare_s) for bare_s, other_s in found.pairs])
    return {"loop": loop, "compiled": compiled, "flops_per_sample": found.flops_per_sample, **known, **timed}


def point(loop: str, compiled: bool) -> Point:
    """One rank; on the stand-in of a size that a processor soon has done."""
    warmup, steps = BLOCK * WARMUP_BLOCKS, BLOCK * BLOCKS
    parallel = "none" if loop == "best" else "ddp"
    if not is_real():
        small: dict[str, Any] = {"model": "mnist-cnn", "data": Data(name="synthetic-mnist"), "batch_per_gpu": 2}
        small |= {"parallel": parallel, "compile": compiled, "precision": "bf16"}
        return given.point(1, device="cuda", warmup=BLOCK, steps=4 * BLOCK, **small)
    batch = batch_of(loop, min(gpu["memory_bytes"] for gpu in machine_facts()["gpus"]))
    known: dict[str, Any] = {"model": "resnet50", "data": Data(name="synthetic-imagenet")}
    known |= {"precision": "bf16", "channels_last": True, "batch_per_gpu": batch, "parallel": parallel}
    return given.point(1, device="cuda", warmup=warmup, steps=steps, compile=compiled, **known)


def batch_of(loop: str, memory_bytes: int) -> int:
    """Samples of a step of a line on a GPU with so much memory."""
    if loop.startswith("host"):
        return HOST_BATCH
    if memory_bytes < SMALL_GPU_BYTES:
        return 32
    return 256 if loop == "best" and memory_bytes >= LARGE_GPU_BYTES else 128


def alternate(what: Point, folder: Path, loop: str) -> Alternated:
    """In the rank: a line of the table."""
    apply_settings(what.workload)
    group = join(this_rank("local"), "cuda")
    facts = dataset_facts(what.workload.data)
    assert facts
    source = SyntheticSource(facts, "train")
    bare, other = (make_trainer(what.workload, source, group.device, 0) for _ in range(2))
    batch = first_batch(what, source, group)
    for trainer in (bare, other):
        trainer.model.train()
    minimal = bare_loop(with_fused_optimizer(bare) if loop == "best" else bare)
    feed = BlocksFeed(ResidentFeed(batch, EpochPlan(10_000 * len(batch[1]), len(batch[1]))), minimal, batch)
    buckets = 0
    timer: StepTimer = StepTimer(clock_for("cuda"), losses=loss_reader_for("cuda"))
    if loop in ("equal", "fused"):
        step = bare_loop(with_fused_optimizer(other) if loop == "fused" else other)
        for _ in range(what.measure.warmup_steps + what.measure.steps):
            step(feed.next(timer))
    else:
        log = StepLog(timer, folder / "records", 0, buckets=loop == "on")
        if loop == "on" and other.ddp:
            time_buckets(other.ddp, timer)
        trained = train(what, other, feed, log, group)
        buckets = round((trained.bucket_rows or 0) / trained.rows)
    flops = flops_per_sample(bare.module, source.shape)
    group.leave()
    return Alternated(feed.pairs[what.measure.warmup_steps // BLOCK :], flops, buckets)


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
    hook_us = _of(rows, "host on")["added_us"] - _of(rows, "host off")["added_us"]
    return {
        "bench": "gpu_step",
        "host_us": round(_of(rows, "host off")["added_us"], 1),
        "host_aim_us": HOST_AIM_US,
        "hook_us": round(hook_us, 1),
        "hook_aim_us": BUCKET_AIM_US * _of(rows, "host on")["buckets"],
        "best": best(rows, machine_facts()["gpus"][0]["name"]),
        "steps": rounded,
        "holds": all(row["holds"] is not False for row in rows),
    }


def best(rows: list[dict[str, Any]], gpu: str) -> dict[str, float | None]:
    """How fast train() is at its fastest, beside the best hand-written loop of this run, the card's peak and MLPerf's rate."""
    row, known = _of(rows, "best"), gpu.removeprefix("NVIDIA ")
    step_ms = row["bare_ms"] * (1 + row["added_percent"] / 100)
    images_per_s = row["batch"] / step_ms * 1e3
    by_hand = max(each["batch"] / each["bare_ms"] * 1e3 for each in rows)
    peak, flops, mlperf = peak_flops_per_s(gpu, "bf16"), row["flops_per_sample"], MLPERF.get(known)
    return {
        "images_per_s": round(images_per_s, 1),
        "share_of_best_loop_percent": round(100 * images_per_s / by_hand, 2),
        "share_of_peak_percent": round(100 * images_per_s * flops / peak, 2) if peak and flops else None,
        "mlperf_images_per_s": mlperf,
        "share_of_mlperf_percent": round(100 * images_per_s / mlperf, 2) if mlperf else None,
    }


def _holds(row: dict[str, Any], bound: float) -> bool | None:
    return True if row["high_percent"] <= bound else False if row["low_percent"] > bound else None


def bound_percent(row: dict[str, Any]) -> float | None:
    """None for lines that only tell: two bare loops, and the hook's own time, which depends on the number of buckets."""
    if row["loop"] == "host off":
        return float(100 * HOST_BOUND_US / (row["bare_ms"] * 1e3))
    if row["loop"] == "best":
        return 100 * (100 / BEST_SHARE_PERCENT - 1)
    return SHARE_BOUND_PERCENT if row["loop"] in ("off", "on") else None


def _of(rows: list[dict[str, Any]], loop: str) -> dict[str, Any]:
    (row,) = (row for row in rows if row["loop"] == loop)
    return row


def best_line(found: dict[str, float | None]) -> str:
    """`ResNet-50: 3000.0 images/s, 98.20 % of the best loop by hand, 7.40 % of the card's peak, 37.74 % of MLPerf's 7950`."""
    words = [f"ResNet-50: {found['images_per_s']} images/s", f"{found['share_of_best_loop_percent']} % of the best loop by hand"]
    if found["share_of_peak_percent"] is not None:
        words.append(f"{found['share_of_peak_percent']} % of the card's peak in bf16")
    if found["mlperf_images_per_s"] is not None:
        words.append(f"{found['share_of_mlperf_percent']} % of MLPerf's {found['mlperf_images_per_s']:.0f}")
    return ", ".join(words)


def as_result(result: dict[str, Any]) -> dict[str, Any]:
    """A line of the results."""
    found: dict[str, dict[str, float]] = {
        "host_us": {"value": result["host_us"], "most": HOST_BOUND_US, "aim": HOST_AIM_US},
        "hook_us": {"value": result["hook_us"], "aim": result["hook_aim_us"]},
    }
    found |= {f"best_{name}": {"value": value} for name, value in result["best"].items() if value is not None}
    for row in result["steps"]:
        name = f"{row['loop'].replace(' ', '_')}{'_compiled' if row['compiled'] else ''}"
        found[f"{name}_added_percent"] = {"value": row["added_percent"], "low": row["low_percent"], "high": row["high_percent"]}
        found[f"{name}_bare_images_per_s"] = {"value": row["images_per_s"]}
        if row["bound_percent"] is not None:
            found[f"{name}_added_percent"]["most"] = row["bound_percent"]
    return {"test": "bench gpu_step", "outcome": "passed" if result["holds"] else "failed", "reason": None, "figures": found}


if __name__ == "__main__":
    sys.exit(main())
