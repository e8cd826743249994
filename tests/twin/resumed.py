"""Runs that are interrupted on a twin and taken up again: what is waited for, and what they must come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcddp.analysis.records.attempts import read_attempts
from hpcddp.analysis.records.json_files import read_launch, read_training_end
from hpcddp.analysis.records.steps import joined
from hpcddp.analysis.runs.load_run import load_run
from hpcddp.analysis.runs.run import Run
from hpcddp.core.jobspec import JobSpec, spec_to_dict
from hpcddp.core.point import Point, point_from_dict
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from hpcddp.study.progress import last_rows
from hpcddp.worker.main import run
from tests.twin.processes import wait_until
from tests.twin.userland import User
from tests.worker import forked

PATIENCE_S = 300.0

RUN = """
schema: 1
cluster: rcc
device: cpu
workload: {{model: "held:model", data: {{name: synthetic-mnist}}, batch_per_gpu: 4, loader_workers_per_rank: 1,
           ddp: {{bucket_cap_mb: 0.02}}}}
layout: {{nodes: 2, gpus_per_node: 2, physical_cores_per_rank: 1}}
measure: {{warmup_steps: 5, steps: {steps}, resume: true, telemetry_hz: 2{measure}}}
slurm: {{walltime_min: 10}}
"""

MODEL = """
import os, pathlib, signal, time
from torch import nn

def model(classes):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.Linear(32, classes))
    calls = [0]
    restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0) if "SLURM_JOB_ID" in os.environ else None

    def wait(*_):
        if not net.training:
            return
        calls[0] += 1
        {wait}

    net.register_forward_pre_hook(wait)
    return net
"""
"""`wait` is done before every step, not where ranks compare what they compute; `restart` is None where nothing interrupts."""


def submitted(user: User, steps: int, wait: str, measure: str = "") -> tuple[str, Path]:
    """The job of a run of 5 and so many steps, and the run's folder; `measure`: more of it, after a comma."""
    (user.home / "study.yaml").write_text(RUN.format(steps=steps, measure=measure), encoding="utf-8")
    (user.home / "held.py").write_text(MODEL.format(wait=wait), encoding="utf-8")
    user.hpcddp("submit", "study.yaml", "-y")
    (study,) = user.json("status", "study", exit_code=3)["studies"]
    (found,) = study["runs"]
    return found["job"], user.home / "study" / found["label"] / "r1"


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def wait_for_steps(user: User, attempt: Path) -> None:
    def show() -> str:
        logs = (file for file in sorted(user.home.rglob(".jobs/*/*.err")))
        return "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in logs)

    wait_until(lambda: bool(last_rows(steps_file(attempt, 0))), [], f"the first steps of {attempt.name}", PATIENCE_S, show)


def at_the_end(attempt: Path) -> str:
    """The checksum of the parameters of a run that passed its gates."""
    end = read(attempt / "end.json")
    assert (end["state"], [gate["name"] for gate in end["gates"] if not gate["passed"]]) == ("done", [])
    (gate,) = [gate for gate in end["gates"] if gate["name"] == "parameters agree"]
    return str(gate["evidence"].rpartition("at the end ")[2])


def in_one_piece(user: User, run_dir: Path) -> str:
    """What the same point comes to in four processes that nobody interrupts."""
    spec = JobSpec(point=_point(run_dir), study=str(user.home / "whole"), backend="local")
    forked.values(user.home / "output", 4, run, spec_to_dict(spec), nodes=2)
    return at_the_end(spec.attempt_dir("7", 0))


def counted_steps(run_dir: Path, last: Path) -> list[int]:
    """Numbers of the steps that analysis counts in a run that counts, which the attempt `last` ended, with none lost."""
    point, end = _point(run_dir), read_training_end(last)
    blank = Run(label=point.label, run=1, state="missing", point=point)
    found = load_run(Study(run_dir.parents[1]).attempts(point.label, 1), blank, {}, [])
    assert (found.state, found.attempt, found.restarts, found.lost_steps) == ("counts", last.name, len(end.history) - 1, 0)
    parts = read_attempts(last, read_launch(last, point), end, point, [])
    return list(map(int, joined([part.steps for part in parts]).step))


def _point(run_dir: Path) -> Point:
    return point_from_dict(read(run_dir.parent / "point.json")["point"])
