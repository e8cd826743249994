"""A plan whose runs go to a Slurm cluster in one allocation, and the batch they are submitted as."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcddp.backends.base import Batch, Submission
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.settings import Settings
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.submit.choose import ChosenPoints, job_requests
from hpcddp.submit.one_allocation import allocation_batch
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep

SWEEP = """
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


def submission_plan(folder: Path, *settings: str, axes: str = "{layout.nodes: [1, 2, 4]}", **facts: Any) -> SubmissionPlan:
    """What `hpcddp submit --one-allocation` makes of the sweep, on an rcc whose nodes need no modules."""
    file = folder / "small.yaml"
    file.write_text(SWEEP.replace("AXES", axes))
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
