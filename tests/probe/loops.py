"""Training loops of a user's own, for the probe to measure, in ranks of forked."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hpcddp.core.run_root import Study, studies
from hpcddp.probe import measure

WARMUP, STEPS = 4, 12
BATCH = 8

EPOCHS = 3
"""Of the eight batches that `loader` has."""


def network() -> nn.Module:
    """Small, with a layer of statistics."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def loader(samples: int = 64, **options: Any) -> DataLoader[Any]:
    """Random vectors and classes, the same ones every time."""
    draw = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(samples, 16, generator=draw), torch.randint(4, (samples,), generator=draw))
    return DataLoader(data, batch_size=BATCH, drop_last=True, **options)


@dataclass
class Loop:
    """A training as its author wrote it; what differs from the plain one is replaced."""

    model: nn.Module
    batches: Any = None
    step: Callable[[Any, nn.Module, torch.optim.Optimizer, Any], None] | None = None
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] = lambda model: torch.optim.SGD(model.parameters(), lr=0.01)
    options: Any = None

    def run(self) -> nn.Module:
        """Trains; the model."""
        optimizer = self.make_optimizer(self.model)
        options = {"samples_per_step": BATCH, "warmup_steps": WARMUP, "steps": STEPS, **(self.options or {})}
        with measure(self.model, optimizer, **options) as steps:
            batches = self.batches if self.batches is not None else loader()
            for _ in range(EPOCHS):
                for batch in steps(batches):
                    (self.step or plain_step)(batch, self.model, optimizer, steps)
        return self.model


def plain_step(batch: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: Any) -> None:
    """Forward, loss, backward, update."""
    images, labels = batch
    loss = steps.loss(nn.functional.cross_entropy(model(images), labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@contextlib.contextmanager
def group() -> Iterator[int]:
    """A gloo group of forked's ranks; the number of this one."""
    rank, world = int(os.environ["SUBMITIT_LOCAL_GLOBALID"]), int(os.environ["SUBMITIT_LOCAL_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    try:
        yield rank
    finally:
        dist.destroy_process_group()


def ddp(model: nn.Module, **options: Any) -> nn.Module:
    """The model with its gradients averaged."""
    return DistributedDataParallel(model, **options)


class SlowEverySecondTime:
    """Sleeps every second time that it is called, so that slow and other steps see the same machine."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls = 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls % 2 == 0:
            time.sleep(self._seconds)


def study_at(folder: Path) -> Study:
    """What measurements with HPCDDP_RUNS=folder left."""
    (found,) = studies(folder)
    return found
