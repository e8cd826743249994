"""A submission plan as `hpcddp submit` makes it of a small sweep file, its study, and lines of its submissions.jsonl."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.settings import Settings
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import Event, SubmissionEvent, append
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
