"""The folder of a Slurm array: the list of its tasks, and a folder for each task's own files.

    .jobs/NAME/            the array's: job.sbatch, tasks.jsonl, submitted.pkl that all tasks load
    .jobs/NAME/7/          a task's: logs and results, as a single job's folder has them
    .jobs/ARRAYID -> NAME

Runs that share one allocation have such a folder too. Standard library only, Python 3.10.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import base_id, slurm_id, slurm_job
from hpcddp.core.records import write_file

TASKS = "tasks.jsonl"

PICKLE = "submitted.pkl"
"""In the folder of an array and of a single job: what submitit shall run."""

OWN = ("point", "run", "data_root", "script")
"""Keys of a job's spec that differ from task to task; the others are the same in all of an array."""


def prepare_array(folder: Path, specs: Sequence[Mapping[str, object]]) -> None:
    """Makes the folder of an array of these specs (of jobspec.spec_to_dict), task by task from 0."""
    folder.mkdir(parents=True)
    lines = [json.dumps({key: spec[key] for key in OWN if key in spec}, sort_keys=True, separators=(",", ":")) for spec in specs]
    write_file(folder / TASKS, "\n".join([*lines, ""]))
    for task in range(len(specs)):
        (folder / str(task)).mkdir()


def shared_by_all(spec: Mapping[str, object]) -> dict[str, object]:
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


def link_pickle(folder: Path, env: Mapping[str, str]) -> None:
    """Puts the pickle where submitit looks for it, by the job's id: the first rank that comes makes the link."""
    job = slurm_job(env) or ""
    with contextlib.suppress(FileExistsError):
        (folder / f"{slurm_id(job)}_submitted.pkl").symlink_to(PICKLE if base_id(job) == job else Path("..", PICKLE))
