"""Runs that are the tasks of one Slurm array, or steps of one job: a list by task, and a folder for each task's own files.

    .jobs/NAME/            the array's: job.sbatch, tasks.jsonl, submitted.pkl that all tasks load
    .jobs/NAME/7/          what one job's folder holds else: logs, results
    .jobs/ARRAYID -> NAME

A task's job id is ARRAYID_TASK, as squeue and sacct print it: SLURM_JOB_ID is a number of its own for each task, and the last to
start has the array's. A run in one allocation with others has JOBID+TASK, which is hpcddp's own word: Slurm knows JOBID, and
numbers steps as they start. Standard library only, Python 3.10.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError

TASKS = "tasks.jsonl"

PICKLE = "submitted.pkl"
"""Of any job: what submitit shall run."""

TASK_VARIABLE = "HPCDDP_TASK"
"""Which of the runs of one allocation this is."""

OWN = ("point", "run", "data_root")
"""What of a job's spec is a task's own; the rest is the same in all of an array."""


def slurm_job(env: Mapping[str, str]) -> str | None:
    """The job this process belongs to, as Slurm lists it: `12`, or `12_7` in an array; `12+7` in one allocation with others; None
    outside of jobs.
    """
    array, task = env.get("SLURM_ARRAY_JOB_ID"), env.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    job, shared = env.get("SLURM_JOB_ID"), env.get(TASK_VARIABLE)
    return f"{job}+{shared}" if job and shared else job


def base_id(job: str) -> str:
    """What sbatch and sacct call all of the array, or the job, that a task is of; a job of its own is itself."""
    return re.split(r"[_+]", job)[0]


def slurm_id(job: str) -> str:
    """What squeue and scancel call it: a run in one allocation is not known to them."""
    return job.partition("+")[0]


def each_task(listed: str) -> list[str]:
    """The jobs of a line of squeue or sacct: of `12_[0-2,5%3]`, tasks that share one, `12_0`, `12_1`, `12_2` and `12_5`."""
    found = re.fullmatch(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\]", listed)
    if found is None:
        return [listed]
    parts = (re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part) for part in found[2].split(","))
    spans = (range(int(part[1]), int(part[2] or part[1]) + 1, int(part[3] or 1)) for part in parts if part)
    return [f"{found[1]}_{task}" for span in spans for task in span]


def prepare(folder: Path, specs: Sequence[Mapping[str, Any]]) -> None:
    """Makes the folder of an array of these specs (of jobspec.spec_to_dict), task by task from 0."""
    folder.mkdir(parents=True)
    lines = [json.dumps({key: spec[key] for key in OWN}, sort_keys=True, separators=(",", ":")) for spec in specs]
    (folder / TASKS).write_text("\n".join([*lines, ""]), encoding="utf-8")
    for task in range(len(specs)):
        (folder / str(task)).mkdir()


def shared_by_all(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without what is a task's own."""
    return {key: value for key, value in spec.items() if key not in OWN}


def read_task(folder: Path) -> dict[str, Any]:
    """A task's own part of its spec; `folder` is the task's. HpcddpError where the array's list has no such line."""
    with (folder.parent / TASKS).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == int(folder.name):
                own: dict[str, Any] = json.loads(line)
                return own
    raise HpcddpError(f"{folder.parent / TASKS} has no task {folder.name}")


def put_pickle(folder: Path, env: Mapping[str, str]) -> None:
    """Puts the pickle where submitit looks for it, by the job's id: the first rank that comes makes the link."""
    job = slurm_job(env) or ""
    with contextlib.suppress(FileExistsError):
        (folder / f"{slurm_id(job)}_submitted.pkl").symlink_to(PICKLE if base_id(job) == job else Path("..", PICKLE))
