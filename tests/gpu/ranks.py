"""Runs on the GPUs: real ranks, one for each, and what they record."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.jobspec import spec_from_dict, spec_to_dict
from hpcddp.core.point import Data, Point
from hpcddp.core.records import buckets_file, error_file, gpus_file, steps_file
from hpcddp.worker.main import run
from hpcddp.worker.training.trainer import Trainer
from tests.fake_slurm import wait_for
from tests.gpu.device import gpu_count, is_real, on_device
from tests.worker import forked, given

TIMEOUT_S = 150.0
"""Of a test's ranks: CUDA, NCCL and a compiler begin in it, and one that hangs must leave time for the others."""

READINGS = 3
"""Of each GPU, in a run on the stand-in that reads them at all."""

Row = dict[str, int | None]


@dataclass(frozen=True)
class Attempt:
    folder: Path
    outcomes: list[forked.Outcome]

    @property
    def end(self) -> dict[str, Any]:
        return _json(self.folder / "end.json")

    @property
    def launch(self) -> dict[str, Any]:
        return _json(self.folder / "launch.json")

    @property
    def node(self) -> dict[str, Any]:
        (file,) = (self.folder / "nodes").glob("*.json")
        return _json(file)

    def error(self, rank: int) -> dict[str, Any]:
        return _json(error_file(self.folder, rank))

    def steps(self, rank: int) -> list[Row]:
        return _rows(steps_file(self.folder, rank))

    def timed_steps(self, rank: int) -> list[Row]:
        """Without warm-up and the first after a pause."""
        return [row for row in self.steps(rank) if not row["flags"]]

    def buckets(self, rank: int) -> list[Row]:
        return _rows(buckets_file(self.folder, rank))

    def readings(self) -> list[Row]:
        return _rows(gpus_file(self.folder, self.node["host"]))

    def gate(self, name: str) -> dict[str, Any]:
        (found,) = [gate for gate in self.end["gates"] if gate["name"] == name]
        return dict(found)

    def check_done(self) -> None:
        """Every rank came to its end, every gate passed but that of a GPU's heat, the first and last losses are finite."""
        output = "\n".join(outcome.output for outcome in self.outcomes)
        assert [outcome.code for outcome in self.outcomes] == [0] * len(self.outcomes), output
        end = self.end
        failed = [gate for gate in end["gates"] if not gate["passed"] and gate["name"] != "GPU clocks held"]
        assert (end["state"], failed) == ("done", [])
        assert None not in (end["loss_first"], end["loss_last"])


def gpu_point(ranks: int | None = None, **changes: Any) -> Point:
    """On every GPU, or so many; of a size that keeps one busy, and on the stand-in of one that a processor soon has done.

    `changes`: of given.point.
    """
    size = (
        {"model": "resnet18", "data": Data(name="synthetic-cifar10"), "batch_per_gpu": 256, "warmup": 10, "steps": 60}
        if is_real()
        else {"batch_per_gpu": 4, "warmup": 2, "steps": 4}
    )
    return given.point(ranks or gpu_count(), device="cuda", **{**size, **changes})


def steps(on_gpu: int, on_stand_in: int) -> int:
    """How many of something: enough to measure, or enough to see that it works."""
    return on_gpu if is_real() else on_stand_in


def run_point(
    study: Path, point: Point, *, job: str = "7", before: Callable[[], None] | None = None, timeout_s: float = TIMEOUT_S
) -> Attempt:
    """`before` is called in every rank, in front of the run."""
    spec = given.job(study, point)
    outcomes = forked.ranks(
        study / f"output{job}", point.ranks, on_device, _run, job, spec_to_dict(spec), before, timeout_s=timeout_s
    )
    return Attempt(spec.attempt_dir(job, 0), outcomes)


def values(folder: Path, world: int, function: Callable[..., Any], *arguments: Any, timeout_s: float = TIMEOUT_S) -> list[Any]:
    return forked.values(folder, world, on_device, function, *arguments, timeout_s=timeout_s)


def done(study: Path, point: Point, *, before: Callable[[], None] | None = None) -> Attempt:
    """A run that `check_done` finds nothing in."""
    attempt = run_point(study, point, before=before)
    attempt.check_done()
    return attempt


def _run(job: str, spec: dict[str, Any], before: Callable[[], None] | None) -> Any:
    os.environ["HPCDDP_JOB"] = job
    if before:
        before()
    planned = spec_from_dict(spec)
    if planned.point.measure.telemetry_hz and not is_real():  # the fifth step is timed, and a busy machine's reader comes last
        file, rows = gpus_file(planned.attempt_dir(job, 0), "node0"), READINGS * planned.point.layout.gpus_per_node
        before_step(5, lambda: _hold(file, rows))
    return run(spec)


def before_step(number: int, act: Callable[[], None]) -> None:
    """It is called in this rank, in front of the step of that number."""
    real, begun = Trainer.step, itertools.count(1)

    def step(self: Trainer, *arguments: Any) -> Any:
        if next(begun) == number:
            act()
        return real(self, *arguments)

    Trainer.step = step  # type: ignore[method-assign, assignment]


def _hold(file: Path, rows: int) -> None:
    """Until so many rows more are there."""
    begin = _lines(file)
    wait_for(lambda: _lines(file) >= begin + rows)


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _rows(file: Path) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [{name: int(value) if value else None for name, value in row.items()} for row in csv.DictReader(lines)]


def same_bits_every_time() -> None:
    """Called before CUDA begins: cuBLAS reads its workspace then (torch's notes on reproducibility)."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
