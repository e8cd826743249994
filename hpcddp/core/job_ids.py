"""Ids of jobs, as Slurm writes them: `12`, a task of an array `12_7`, a run in one allocation with others `12+7`.

A task's job id is ARRAYID_TASK, as squeue and sacct print it: SLURM_JOB_ID is a number of its own for each task, and the last to
start has the array's. JOBID+TASK is hpcddp's own notation: Slurm knows JOBID, and numbers steps as they start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

BackendName = Literal["slurm", "local", "hosts", "sagemaker"]
"""How work reaches machines: a Slurm, this machine, hosts by ssh, Amazon SageMaker (hpcddp/backends/)."""

TASK_VARIABLE = "HPCDDP_TASK"
"""Which of the runs of one allocation this process belongs to."""


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


DROPPED = ("SBATCH_", "SQUEUE_", "SACCT_", "SLURM_", "SUBMITIT_", TASK_VARIABLE)
"""Beginnings of names: the user's own defaults, of which SQUEUE_* and SACCT_* would hide jobs, and what an enclosing allocation
set."""

RETAINED = ("SLURM_CONF", "SLURM_CLUSTERS")
"""Slurm's commands find their cluster by them."""


def slurm_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without the variables of DROPPED, but with those of RETAINED."""
    return {name: value for name, value in env.items() if name in RETAINED or not name.startswith(DROPPED)}
