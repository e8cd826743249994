"""What analysis tells of a training is what a clock around its epochs shows that stops for evaluations and checkpoints."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Optimizer, Point
from hpcddp.core.records import PARTS
from hpcddp.worker.main import run
from hpcddp.worker.training import preemption
from hpcddp.worker.training.epochs import EpochRecorder
from hpcddp.worker.training.preemption import Action
from hpcddp.worker.training.resume import Checkpointer
from hpcddp.worker.training.trainer import Trainer
from tests.analysis.synthetic import write_study
from tests.worker import forked, given

pytestmark = pytest.mark.timed

HERE = "tests.worker.test_epoch_rate"
BATCH, LEFT_OVER, EVALUATED, EPOCHS = 16, 5, 64, 4
EPOCH_S = 0.3
"""Of reading an epoch's samples: what lies between a step and a pause is a hundredth of it at most."""


class Slow(TensorDataset):
    """As many samples as the root is called, and readers that share them; each sample takes a while."""

    classes = 10

    def __init__(self, root: str | None, split: str) -> None:
        samples, readers = map(int, Path(root or "").name.split("-"))
        self.sample_s = EPOCH_S * readers / samples
        if split == "eval":
            samples, self.sample_s = EVALUATED, 0.0
        super().__init__(*given.mnist(samples).batch(torch.arange(samples)))

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.sample_s)
        return super().__getitem__(index)  # type: ignore[no-untyped-call]


def wide(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, classes))


def training(folder: Path, ranks: int, steps: int, workers: int = 0, warmup: int = 1, **changes: Any) -> Point:
    """`steps` an epoch; with the rest of a set that fills no batch."""
    root = folder / f"{BATCH * steps + LEFT_OVER}-{ranks * max(1, workers)}"
    root.mkdir(parents=True, exist_ok=True)
    return given.point(
        ranks,
        work="train",
        warmup=warmup,
        model=f"{HERE}:wide",
        data=Data(name=f"{HERE}:Slow", root=str(root)),
        batch_per_gpu=BATCH // ranks,
        loader_workers_per_rank=workers,
        optimizer=changes.pop("optimizer", Optimizer(lr=0.01)),
        measure={"epochs": EPOCHS, **changes},
    )


@dataclass
class Clock:
    """Of a rank; stops while it is entered."""

    stopped_s: float = 0.0
    entered_s: float = 0.0
    times_s: dict[int, float] = field(default_factory=dict)
    """Steps of the run -> what it showed when so many were made."""

    def note(self, steps: int) -> None:
        self.times_s[steps] = time.monotonic() - self.stopped_s

    def __enter__(self) -> None:
        self.entered_s = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.stopped_s += time.monotonic() - self.entered_s


def clocked(job: str, spec: dict[str, Any], stop_after: int | None) -> dict[int, float]:
    """A rank's part of an attempt, with its clock's times; told to stop after so many steps."""
    os.environ["HPCDDP_JOB"] = job
    vars(preemption)["POLL_EVERY_S"] = 0.0
    clock, made = Clock(), 0
    real_begin, real_close, real_step = EpochRecorder.begin, EpochRecorder.close, Trainer.step
    real_poll, real_write = Checkpointer.poll, Checkpointer.write

    def begin(self: EpochRecorder, first_step: int) -> None:
        real_begin(self, first_step)
        clock.note(first_step)

    def close(self: EpochRecorder, steps: int) -> None:
        clock.note(steps)
        with clock:
            real_close(self, steps)

    def poll(self: Checkpointer, steps: int) -> Action:
        began_s, action = time.monotonic(), real_poll(self, steps)
        if action != "continue":
            clock.stopped_s += time.monotonic() - began_s
        return action

    def write(self: Checkpointer, steps: int, *, last: bool) -> None:
        with clock:
            real_write(self, steps, last=last)

    def step(self: Trainer, *arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made == stop_after:
            os.kill(os.getpid(), signal.SIGUSR2)
        return real_step(self, *arguments)

    EpochRecorder.begin, EpochRecorder.close = begin, close  # type: ignore[method-assign]
    Checkpointer.poll, Checkpointer.write = poll, write  # type: ignore[method-assign]
    Trainer.step = step  # type: ignore[method-assign, assignment]
    run(spec)
    return clock.times_s


def trained(study: Path, point: Point, *stops_after: int) -> tuple[Findings, list[list[dict[int, float]]]]:
    """What analysis finds, and each attempt's clocks, rank by rank; one attempt more than it is told to stop."""
    records = write_study(study, [point])
    clocks = []
    for number, stop_after in enumerate((*stops_after, None)):
        spec = given.job(study, point)
        arguments = (str(7 + number), spec_to_dict(spec), stop_after)
        clocks.append(forked.values(study / f"output{number}", point.ranks, clocked, *arguments))
    return find(load_study(records)), clocks


def epoch_s(clocks: list[list[dict[int, float]]], ends: list[int], warmup: int) -> float:
    """The mean over ranks, and over the epochs that an attempt made from end to end after its warm-up."""
    return fmean(
        times[end] - times[begin]
        for attempt in clocks
        for times in attempt
        for begin, end in pairwise([0, *ends])
        if begin in times and end in times and begin - min(times) >= warmup
    )


CASES: dict[str, dict[str, Any]] = {
    "one rank, a step an epoch": {"ranks": 1, "steps": 1},
    "one rank, 32 steps": {"ranks": 1, "steps": 32, "workers": 2},
    "two ranks, a step an epoch": {"ranks": 2, "steps": 1, "workers": 1},
    "two ranks, warm-up to an epoch's end": {"ranks": 2, "steps": 4, "warmup": 4},
    "two ranks, warm-up into the second epoch": {"ranks": 2, "steps": 4, "workers": 2, "warmup": 5},
    "four ranks": {"ranks": 4, "steps": 8, "workers": 1},
    "checkpoints within an epoch": {"ranks": 2, "steps": 8, "resume": True, "checkpoint_every_min": 6e-3},
    "a batch that grows": {
        "ranks": 2,
        "steps": 8,
        "workers": 1,
        "optimizer": Optimizer(lr=0.01, batch_at_epochs=(2,), batch_factor=3),
    },
    "a target that the second epoch reaches": {"ranks": 1, "steps": 4, "evaluate_every": 2, "target_accuracy": 0.001},
}


FOR_SOAK = ("one rank, a step an epoch", "two ranks, warm-up to an epoch's end", "four ranks")
"""What two ranks with a step an epoch, with a warm-up into the second epoch and with a batch that grows show, too."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.soak if name in FOR_SOAK else []) for name in CASES])
def test_rate_and_epoch_are_those_of_the_clock(tmp_path: Path, name: str) -> None:
    point = training(tmp_path / "data", **CASES[name])
    found, clocks = trained(tmp_path / "study", point)
    row, epochs = found.shown.iloc[0], found.epochs
    passed_s = epoch_s(clocks, epochs["step"].tolist(), point.measure.warmup_steps)
    begins, each = epochs["step"].shift(fill_value=0), epochs["samples"].diff().fillna(epochs["samples"])
    samples = each[begins >= point.measure.warmup_steps].mean()
    assert row["epoch_s"] == pytest.approx(passed_s, rel=0.01)
    assert row["samples_per_s"] == pytest.approx(samples / passed_s, rel=0.01)
    assert row["node_h_per_epoch"] == pytest.approx(passed_s / 3600, rel=0.01)
    assert sum(row[f"{part}_s"] or 0 for part in PARTS if pd.notna(row[f"{part}_s"])) == pytest.approx(row["step_s"])
    (run,) = found.records.runs
    assert run.state == "counts"


def test_a_restart_within_an_epoch(tmp_path: Path) -> None:
    point = training(tmp_path / "data", 2, 8, workers=1, resume=True, checkpoint_every_min=0.0)
    found, clocks = trained(tmp_path / "study", point, 19)
    passed_s = epoch_s(clocks, found.epochs["step"].tolist(), point.measure.warmup_steps)
    assert found.shown.iloc[0]["epoch_s"] == pytest.approx(passed_s, rel=0.01)
