"""Submission plans as `hpcddp submit` makes them of small sweep files, on this machine or in one allocation; studies of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcddp.backends.base import Batch, Submission
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.settings import Settings
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import Event, SubmissionEvent, append
from hpcddp.submit.choose import ChosenPoints, job_requests
from hpcddp.submit.one_allocation import allocation_batch
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep

SWEEP = """
schema: 1
cluster: local
device: cpu
workload:
  model: mnist-cnn
  data: {name: synthetic-mnist}
  batch_per_gpu: 8
  loader_workers_per_rank: 0
points:
  ranks: {layout.gpus_per_node: [1, 2]}
  alone: {layout.gpus_per_node: [1]}
measure: {warmup_steps: 1, steps: 3}
repeat: 2
"""


SLURM = """
schema: 1
name: small-slurm
title: One node of two GPUs
default_node_type: host
node_types:
  host: {physical_cores: 8, smt: 1, memory_mb: 16000, gpus: 2}
slurm: {partition: batch}
"""
"""A profile, for plans whose runs take hours of a cluster."""


def slurm_profile(folder: Path) -> str:
    """Its file."""
    file = folder / "small-slurm.yaml"
    file.write_text(SLURM)
    return str(file)


def submission_plan(folder: Path, *settings: str, cluster: str | None = None, user: Settings = Settings()) -> SubmissionPlan:  # noqa: B008
    """What `hpcddp submit` makes of a sweep file."""
    file = folder / "small.yaml"
    file.write_text(SWEEP)
    source = read_sweep(file, settings, cluster)
    profile = load_profile(str(source.sweep.cluster))
    return SubmissionPlan(source=source, profile=profile, points=expand(source, profile), requests={}, settings=user)


def study_of(folder: Path) -> Study:
    return Study(folder / "runs" / "small")


def labels(planned: SubmissionPlan) -> list[str]:
    return [entry.point.label for entry in planned.points]


def log_event(study: Study, label: str, event: Event = "submitted", *, run: int = 1, token: str = "t", **facts: Any) -> None:
    """Adds a line on the run; on Slurm where `backend` is not given."""
    facts = {"backend": "slurm", "unix_s": time.time(), **facts}
    append(study, [SubmissionEvent(event=event, token=token, label=label, run=run, **facts)])


ALLOCATION_SWEEP = """
schema: 1
cluster: rcc
device: cpu
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
layout: {gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {all: AXES}
baselines: false
measure: {warmup_steps: 1, steps: 3}
repeat: 2
account: proj
slurm: {walltime_min: 30, mem_mb: 2000}
"""


def allocation_plan(folder: Path, *settings: str, axes: str = "{layout.nodes: [1, 2, 4]}", **facts: Any) -> SubmissionPlan:
    """What `hpcddp submit --one-allocation` makes of the sweep, on an rcc whose nodes need no modules."""
    file = folder / "small.yaml"
    file.write_text(ALLOCATION_SWEEP.replace("AXES", axes))
    source = read_sweep(file, settings)
    profile = load_profile(str(source.sweep.cluster))
    profile = dataclasses.replace(profile, compute=dataclasses.replace(profile.compute, modules=(), activate=()))
    points = expand(source, profile)
    requests = job_requests(ChosenPoints(source=source, profile=profile, points=points), Settings())
    options = SubmitOptions(one_allocation=True)
    planned = SubmissionPlan(
        source=source, profile=profile, points=points, requests=requests, settings=Settings(), options=options
    )
    return dataclasses.replace(planned, **facts)


def runs_of(planned: SubmissionPlan) -> list[tuple[Point, int]]:
    """Every run, the smallest points first."""
    repeats = range(1, planned.source.sweep.repeat + 1)
    return [(each.point, run) for run in repeats for each in planned.points]


def batch_of(planned: SubmissionPlan, folder: Path, runs: Sequence[tuple[Point, int]] | None = None) -> Batch:
    """The batch that these runs, or all, are submitted as, of a study in `folder`."""
    return allocation_batch(planned, [_submission(point, run, folder) for point, run in (runs or runs_of(planned))])


def _submission(point: Point, run: int, folder: Path) -> Submission:
    spec = JobSpec(point=point, run=run, study=str(folder))
    return Submission(spec=spec, code=folder / ".code" / "0", python="python3", walltime_min=30, token="1f2e3d4c")
