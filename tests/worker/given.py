"""What the worker's tests train: small points and small data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hpcddp.core.catalog import CIFAR10, MNIST, DatasetFacts
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Layout, Measure, Optimizer, Point, Workload
from hpcddp.data.source import TensorSource


def workload(**changes: Any) -> Workload:
    chosen = {"model": "mnist-cnn", "data": Data(name="synthetic-mnist"), "batch_per_gpu": 4, "loader_workers_per_rank": 0}
    return Workload(**{**chosen, "optimizer": Optimizer(lr=0.05, momentum=0.9, weight_decay=1e-3), **changes})


def point(ranks: int = 1, *, nodes: int = 1, warmup: int = 2, steps: int = 4, evaluate: bool = False, **changes: Any) -> Point:
    """Two warm-up and four timed steps of the MNIST CNN, four samples a rank, unless said otherwise; without telemetry."""
    work = changes.pop("work", "steps")
    measure = {"warmup_steps": warmup, "steps": steps, "evaluate": evaluate, "telemetry_hz": 0.0, **changes.pop("measure", {})}
    device = changes.pop("device", "cpu")
    return Point(
        cluster="local",
        workload=workload(**changes),
        layout=Layout(nodes=nodes, gpus_per_node=ranks // nodes),
        measure=Measure(**measure),
        work=work,
        device=device,
    )


def plan(steps_per_epoch: int, batch: int = 16) -> EpochPlan:
    """Epochs of so many steps."""
    return EpochPlan(steps_per_epoch * batch, batch)


def job(study: Path, what: Point, **changes: Any) -> JobSpec:
    return JobSpec(point=what, study=str(study), backend="local", **changes)


def mnist(samples: int) -> TensorSource:
    """Random images and labels of MNIST's shape, the same ones every time."""
    return _random(MNIST, samples)


def cifar(samples: int) -> TensorSource:
    return _random(CIFAR10, samples)


def _random(facts: DatasetFacts, samples: int) -> TensorSource:
    draw = torch.Generator().manual_seed(5)
    images = torch.randint(256, (samples, *facts.shape), dtype=torch.uint8, generator=draw)
    return TensorSource(facts, images, torch.randint(facts.classes, (samples,), generator=draw))
