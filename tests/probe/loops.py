"""Training loops of a user's own for the probe to measure in ranks of forked, and what is read of the records that they leave."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hpcddp.analysis.records.json_files import read_training_end
from hpcddp.analysis.records.ranks import COLUMNS, rank_results, step_tables
from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import StudyRecords, load_study
from hpcddp.core.point import Point
from hpcddp.core.records import PARTS
from hpcddp.core.run_root import Study, studies
from hpcddp.probe import measure
from tests.worker import forked

Optimizer = torch.optim.Optimizer

WARMUP, STEPS = 4, 12
BATCH = 8

EPOCHS = 3
"""Of the eight batches that `loader` has."""


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


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
    step: Callable[[Any, nn.Module, Optimizer, Any], None] | None = None
    make_optimizer: Callable[[nn.Module], Optimizer] = sgd
    options: Any = None

    def run(self) -> None:
        optimizer = self.make_optimizer(self.model)
        options = {"samples_per_step": BATCH, "warmup_steps": WARMUP, "steps": STEPS, **(self.options or {})}
        with measure(self.model, optimizer, **options) as steps:
            batches = self.batches if self.batches is not None else loader()
            for _ in range(EPOCHS):
                for batch in steps(batches):
                    (self.step or plain_step)(batch, self.model, optimizer, steps)


def plain_step(batch: Any, model: nn.Module, optimizer: Optimizer, steps: Any) -> None:
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
    return DistributedDataParallel(model, **options)


class SlowEverySecondTime:
    """Sleeps every second time that it is called, so that slow and other steps see the same machine."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._calls = seconds, 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls % 2 == 0:
            time.sleep(self._seconds)


def study_at(folder: Path) -> Study:
    """What measurements with HPCDDP_RUNS=folder left."""
    (found,) = studies(folder)
    return found


def measured(folder: Path, world: int, function: Callable[..., Any], *arguments: Any) -> StudyRecords:
    """Runs the function in so many ranks, and reads the study that it left."""
    forked.values(folder / "output", world, with_runs, folder / "runs", function, *arguments)
    return load_study(study_at(folder / "runs"))


def with_runs(runs: Path, function: Callable[..., Any], *arguments: Any) -> None:
    """Calls it where measurements go there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCDDP_RUNS", str(runs))
        function(*arguments)


def only(found: StudyRecords) -> Run:
    (run,) = found.runs
    return run


def point_of(run: Run) -> Point:
    assert run.point is not None
    return run.point


def parts_of(run: Run) -> set[str]:
    return {name for name, mean in (run.part_ns or {}).items() if mean}


def rows_of(folder: Path) -> list[Columns]:
    """Of each rank, the steps of the one run that `measured` left there."""
    (attempt,) = study_at(folder / "runs").folder.glob("*/r1/*")
    end, warnings = read_training_end(attempt), list[str]()
    found = list(step_tables(attempt, rank_results(end, len(end.ranks)), COLUMNS, warnings))
    assert warnings == []
    return found


def timed_parts_s(folder: Path, *, longest: bool = False) -> dict[str, float]:
    """Of the first rank over steps that count: each part's median, or its longest. What is unknown is left out."""
    (rows, *_), of_steps = rows_of(folder), np.max if longest else np.median
    timed = {part: rows[f"{part}_ns"][rows["flags"] == 0] for part in PARTS}
    return {part: float(of_steps(times)) / 1e9 for part, times in timed.items() if np.isfinite(times).any()}
