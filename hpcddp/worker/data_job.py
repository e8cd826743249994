"""The job of `hpcddp data ... --cluster`: one process does what the command would do here, and leaves how far it is."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcddp.core.data_job import END_FILE, JOB_FILE, PROGRESS_FILE, DataEnd, DataJob, DataProgress, DataTask, task_of
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import expanded
from hpcddp.core.records import write_json
from hpcddp.core.schema import encode
from hpcddp.data.writing.tasks import run_task
from hpcddp.worker.small_job import begin, leave

WRITTEN_EVERY_S = 2.0

PACE_OVER = 10
"""The pace is that of so many writes: 20 s."""


def run_data_job(spec: dict[str, Any]) -> dict[str, Any]:
    """Does the spec's task and writes end.json, whose content it returns; HpcddpError where the task fails."""
    job, rank, study = begin(spec)
    assert job.data_task is not None, "only a job for a data task is given this entry"
    task, folder, begun_s = task_of(job.data_task), study.data_dir(rank.job), time.monotonic()
    for name in (PROGRESS_FILE, END_FILE):  # of an attempt that was requeued
        (folder / name).unlink(missing_ok=True)
    if not (folder / JOB_FILE).exists():
        now = datetime.now(timezone.utc).isoformat()
        leave(folder / JOB_FILE, DataJob(task=task, job=rank.job, name=task.title, backend=job.backend, submitted_at=now))
    try:
        text = _do(task, folder)
    except HpcddpError as error:
        leave(folder / END_FILE, DataEnd(ok=False, text=str(error), took_s=time.monotonic() - begun_s))
        raise
    print(text, flush=True)
    return leave(folder / END_FILE, DataEnd(ok=True, text=text, took_s=time.monotonic() - begun_s))


def _do(task: DataTask, folder: Path) -> str:
    """What was done; HpcddpError also where the compute environment lacks a module for it, or a file system fails."""
    try:
        return run_task(_here(task), ProgressFile(folder))
    except ModuleNotFoundError as error:
        words = f"The job's Python has no module {error.name}. Install it in the compute environment, or load it in the profile."
        raise HpcddpError(words) from error
    except OSError as error:
        words = error.strerror or str(error)
        raise HpcddpError(f"{error.filename}: {words}" if error.filename else words) from error


def _here(task: DataTask) -> DataTask:
    """With the variables in its folders filled in."""
    given = {name: task.options[name] for name in task.folders if task.options.get(name) is not None}
    return task.with_folders({name: expanded(str(path), f"--{name.replace('_', '-')}") for name, path in given.items()})


class ProgressFile:
    """progress.json, written every few seconds."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / PROGRESS_FILE
        self._written: deque[tuple[float, int]] = deque(maxlen=PACE_OVER)

    def __call__(self, done: int, total: int | None) -> None:
        """Notes that `done` of `total` are done."""
        now_s = time.monotonic()
        if self._written and now_s - self._written[-1][0] < WRITTEN_EVERY_S and done != total:
            return
        self._written.append((now_s, done))
        then_s, before = self._written[0]
        pace = (done - before) / (now_s - then_s) if now_s > then_s else None
        write_json(self._file, encode(DataProgress(done=done, total=total, per_s=pace)), sync=False)
