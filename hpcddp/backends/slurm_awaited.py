"""Jobs that others are to wait for (`--after`). Slurm takes a dependency on a job that it has forgotten as fulfilled, however it
ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcddp.backends.slurm_commands import JobRow, accounted, jobs_of, my_jobs
from hpcddp.backends.slurm_words import slurm_ended_words
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import base_id


def find_awaited(jobs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that wait or run, and a sentence for each that failed or that nobody knows; the others have ended well. By squeue,
    and for what it has forgotten by accounting; all tasks of a job have to end well.
    """
    try:
        rows = my_jobs()
        rows |= jobs_of([job for job in jobs if not _of(job, rows)])
    except HpcddpError as error:
        return [], [f"--after {job}: nobody says what became of it: {error}" for job in jobs]
    why = "Slurm knows no such job: `squeue --me` and `sacct -X` list yours"
    try:
        over = accounted(job for job in jobs if not any(row.is_live for row in _of(job, rows)))
        rows |= {job: row for job, row in over.items() if not row.is_live}
    except HpcddpError as error:
        why = f"squeue has no such job, and how an older one ended nobody says ({error}); leave --after out if it ended well"
    live, refused = list[str](), list[str]()
    for job in jobs:
        of_job = _of(job, rows)
        if failed := next((row for row in of_job if not row.is_live and row.state != "COMPLETED"), None):
            how = slurm_ended_words(failed.state, failed.exit_code)
            refused.append(
                f"--after {job}: it did not end well: {how}. Give the job that does its work now, or leave --after out"
            )
        elif not of_job:
            refused.append(f"--after {job}: {why}")
        elif any(row.is_live for row in of_job):
            live.append(job)
    return live, refused


def _of(job: str, rows: Mapping[str, JobRow]) -> list[JobRow]:
    """Its own, or those of its tasks."""
    return [row for listed, row in rows.items() if job in (listed, base_id(listed))]
