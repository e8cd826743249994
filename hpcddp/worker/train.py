"""The training loop: warm-up, then the timed steps, each timed part by part."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hpcddp.data import TrainLoader
from hpcddp.data.source import to_bytes
from hpcddp.errors import HpcddpError
from hpcddp.point import Point
from hpcddp.records import WARMUP, StepWriter
from hpcddp.worker.inputs import OrderWatch, endless, to_device
from hpcddp.worker.learner import Learner
from hpcddp.worker.steptimer import Row, StepTimer, clock_for


@dataclass
class Losses:
    """The rank's losses as tensors on its device, so that keeping them waits for nothing."""

    first: torch.Tensor | None = None
    last: torch.Tensor | None = None
    total: torch.Tensor | None = None
    """Finite only if every loss is: one operation per step keeps watch over all of them."""

    def add(self, loss: torch.Tensor) -> None:
        self.first = loss if self.first is None else self.first
        self.last = loss
        self.total = loss if self.total is None else self.total + loss


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one rank did."""

    steps: int
    rows: int
    crc32: int
    loss_first: float | None
    loss_last: float | None
    """Mean over the rank's share of the first and the last step; None if not finite."""
    finite: bool
    """Every loss of this rank was finite."""
    checksums: dict[str, str]
    """SHA-256 of the parameters, by when it was taken."""
    epochs: int
    """Epochs begun."""
    repeated_epoch: int | None
    """The first epoch that began as the one before it."""


def step_plan(point: Point, steps_per_epoch: int) -> tuple[int, int]:
    """(all steps, how many of them are warm-up); with `work: epoch` exactly one epoch, its warm-up included."""
    warmup = point.measure.warmup_steps
    if point.work == "steps":
        return warmup + point.measure.steps, warmup
    if steps_per_epoch <= warmup:
        raise HpcddpError(
            f"an epoch has {steps_per_epoch} steps of {point.global_batch} samples and measure.warmup_steps is {warmup}: "
            f"nothing is left to time; lower it, or take smaller batches or more data"
        )
    return steps_per_epoch, warmup


def train(point: Point, learner: Learner, loader: TrainLoader, steps_file: Path) -> Trained:
    """Trains and writes a row per step. Timed: from the first warm-up step on, except for the checksums in between.

    The one after warm-up is taken before the last warm-up step, so that the device's queue is full again when timing begins.
    """
    steps, warmup = step_plan(point, loader.steps_per_epoch)
    losses, watch = Losses(), OrderWatch()
    checksums = {"at the start": checksum(learner.module)}
    learner.ddp.train()  # type: ignore[no-untyped-call]
    with StepWriter(steps_file) as writer, contextlib.closing(endless(loader, watch)) as batches:
        timer = StepTimer(clock_for(learner.device.type))
        for step in range(steps):
            if 0 < step == warmup - 1:
                _write(writer, timer.drain())
                checksums[f"after step {step}"] = checksum(learner.module)
                timer.restart()
            batch = next(batches)
            timer.mark("data_wait")
            batch = to_device(batch, learner.device)
            timer.mark("h2d_exposed")
            loss = learner.step(batch, timer.mark)
            _write(writer, timer.rows())  # of earlier steps: this one's row is part of the next one's record_ns
            timer.mark("record")
            losses.add(loss)
            timer.close_step(WARMUP if step < warmup else 0)
        _write(writer, timer.drain())
    checksums["at the end"] = checksum(learner.module)
    return Trained(
        steps=steps,
        rows=writer.rows,
        crc32=writer.crc32,
        loss_first=_number(losses.first),
        loss_last=_number(losses.last),
        finite=_number(losses.total) is not None,
        checksums=checksums,
        epochs=watch.epochs,
        repeated_epoch=watch.repeated,
    )


def checksum(module: nn.Module) -> str:
    """SHA-256 of all parameters, 16 hexadecimal digits. Without buffers: BatchNorm's differ between ranks by design."""
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(to_bytes(parameter))
    return digest.hexdigest()[:16]


def _write(writer: StepWriter, rows: Iterable[Row]) -> None:
    for row in rows:
        writer.row(row)


def _number(loss: torch.Tensor | None) -> float | None:
    """None for a loss that JSON cannot hold (infinite or not a number)."""
    value = math.nan if loss is None else loss.item()
    return value if math.isfinite(value) else None
