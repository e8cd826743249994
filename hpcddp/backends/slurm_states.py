"""What became of Slurm's jobs, from the rows of squeue and sacct: runs, and jobs that others wait for (`--after`)."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpcddp.backends import slurm_commands
from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_commands import QUEUED, RUNNING, JobRow, accounted, jobs_of, my_jobs
from hpcddp.backends.slurm_words import slurm_ended_words, time_s, waiting_words
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import base_id, slurm_id
from hpcddp.core.run_root import Study


def job_states(studies: Sequence[Study], jobs: Mapping[str, str]) -> dict[str, JobState]:
    """By id, of `jobs` (id -> name) of these studies: one squeue call, one of sacct for jobs that are over, and one more squeue
    for what neither knows, another user's jobs. While the controller is away, what accounting saw end has ended, and the rest
    is unknown. Of runs in one allocation, its state.
    """
    ids = {(slurm_id(job), name) for job, name in jobs.items()}
    queue, over, error = _rows(studies, ids)
    return {job: _state(name, queue.get(slurm_id(job)), over.get(slurm_id(job)), error) for job, name in jobs.items()}


def _rows(studies: Sequence[Study], jobs: Iterable[tuple[str, str]]) -> tuple[dict[str, JobRow], dict[str, JobRow], str | None]:
    """The rows of squeue and of sacct by id, of these ids and names; and why squeue did not answer."""
    ids = {job for job, _ in jobs}
    queue, over, failure = dict[str, JobRow](), dict[str, JobRow](), None
    try:
        queue = _own(studies, ids, slurm_commands.my_jobs())
    except HpcddpError as error:
        failure = str(error)
    left = [(job, name) for job, name in jobs if not _is_live(queue.get(job), name)]
    with contextlib.suppress(HpcddpError):
        over = _own(studies, ids, slurm_commands.accounted({job for job, _ in left}))
    lost = {name for job, name in left if not _has_ended(name, queue.get(job), over.get(job))}
    if lost and failure is None:
        try:
            queue |= _own(studies, ids, slurm_commands.jobs_named(lost))
        except HpcddpError as error:
            failure = str(error)
    return queue, over, failure


def _own(studies: Sequence[Study], jobs: Iterable[str], rows: Mapping[str, JobRow]) -> dict[str, JobRow]:
    """The rows of the jobs, but for those of other studies: an id is given out again that a controller forgot, maybe to a run
    of the same name. A job is the study's own where its working directory is the folder to which the study's link leads.
    """
    found = {job: rows[job] for job in jobs if job in rows}
    links = {array: [study.job_dir(array) for study in studies] for array in {base_id(job) for job in found}}
    folders = {array: [os.readlink(link) for link in own if link.is_symlink()] for array, own in links.items()}
    of_job = {job: folders[base_id(job)] for job in found}
    return {job: row for job, row in found.items() if not of_job[job] or Path(row.workdir).name in of_job[job]}


def _state(name: str, queued: JobRow | None, over: JobRow | None, failure: str | None) -> JobState:
    """From the rows under that id of that name: sacct's newest are nameless at first. `failure`: why squeue is silent."""
    row = queued if _is(queued, name) else None
    accounted = over if _is(over, name) else None
    if row is not None and row.state in QUEUED:
        start = row.start if row.start[:1].isdigit() else None
        return JobState(phase="queued", detail=waiting_words(row.reason), start=start, time_limit=row.time_limit or None)
    if row is not None and row.state in RUNNING:
        return JobState(
            phase="running",
            detail=None if row.state == "RUNNING" else row.state.lower(),
            nodes=row.nodes or None,
            time_limit=row.time_limit or None,
            time_left_s=time_s(row.time_left),
        )
    ended = row if accounted is None or accounted.is_live else accounted  # sacct is late, or slurmctld has lost the job
    if ended is not None:
        return _end_state(ended)
    if failure is not None:
        late = f"; accounting has it as {accounted.state}" if accounted is not None else ""
        return JobState(phase="unknown", detail=f"{failure}{late}")
    return JobState(phase="failed", detail="Slurm no longer lists this job")


def _end_state(row: JobRow) -> JobState:
    """Of a job that is over."""
    if row.state == "COMPLETED":
        return JobState(phase="done", nodes=row.nodes or None)
    return JobState(
        phase="failed",
        detail=slurm_ended_words(row.state, row.exit_code),
        nodes=row.nodes or None,
        word=row.state,
        by=_user(row.by),
        time_limit=row.time_limit or None,
    )


def _user(number: str | None) -> str | None:
    """The user's name, the number where nobody here has it."""
    if number is None or not number.isdecimal():
        return number
    try:
        return pwd.getpwuid(int(number)).pw_name
    except KeyError:
        return f"user {number}"


def _has_ended(name: str, *rows: JobRow | None) -> bool:
    """Whether one of the rows shows a job of that name at its end."""
    return any(row is not None and row.name == name and not row.is_live for row in rows)


def _is_live(row: JobRow | None, name: str) -> bool:
    return row is not None and row.name == name and row.is_live


def _is(row: JobRow | None, name: str) -> bool:
    return row is not None and row.name == name


def find_awaited(jobs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that wait or run, and a sentence for each that failed or that nobody knows; the others have ended well. By squeue,
    and for what it has forgotten by accounting; all tasks of a job have to end well.
    """
    try:
        rows = my_jobs()
        rows |= jobs_of([job for job in jobs if not _of(job, rows)])
    except HpcddpError as error:
        return [], [f"--after {job}: the state of the job is unknown: {error}" for job in jobs]
    why = "Slurm has no such job. List yours with `squeue --me` and `sacct -X`."
    try:
        over = accounted(job for job in jobs if not any(row.is_live for row in _of(job, rows)))
        rows |= {job: row for job, row in over.items() if not row.is_live}
    except HpcddpError as error:
        why = f"squeue lists no such job, and accounting does not answer ({error}). Omit --after if the job succeeded."
    live, refused = list[str](), list[str]()
    for job in jobs:
        of_job = _of(job, rows)
        if failed := next((row for row in of_job if not row.is_live and row.state != "COMPLETED"), None):
            how = slurm_ended_words(failed.state, failed.exit_code)
            step = "Give the job that replaces it, or omit --after."
            refused.append(f"--after {job}: the job failed: {how}. {step}")
        elif not of_job:
            refused.append(f"--after {job}: {why}")
        elif any(row.is_live for row in of_job):
            live.append(job)
    return live, refused


def _of(job: str, rows: Mapping[str, JobRow]) -> list[JobRow]:
    """Its own, or those of its tasks."""
    return [row for listed, row in rows.items() if job in (listed, base_id(listed))]
