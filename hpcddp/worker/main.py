"""The worker: one point, one run, in every rank of a job."""

from __future__ import annotations

from typing import Any

from hpcddp.errors import HpcddpError
from hpcddp.jobspec import spec_from_dict
from hpcddp.records import steps_file
from hpcddp.worker.finish import fail
from hpcddp.worker.ranks import this_rank


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Runs `spec` (of jobspec.spec_to_dict) in this rank; a small summary for the launcher.

    Raises what is wrong with the spec or the launcher's variables, or that the attempt has records already. Any later error
    is recorded in the attempt's folder, and the process ends with exit code 1 without returning: srun then ends the other ranks.
    """
    job = spec_from_dict(spec)
    rank = this_rank(job.backend)
    attempt = job.attempt_dir(rank.job, rank.restart)
    if steps_file(attempt, rank.rank).exists():
        raise HpcddpError(f"{attempt} has the records of an earlier worker of job {rank.job}: run this point in a job of its own")
    try:
        from hpcddp.worker.attempt import run_attempt

        return run_attempt(job, rank, attempt)
    except BaseException as error:
        fail(attempt, rank, error)
