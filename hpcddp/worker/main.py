"""The worker: one point, one run, in every rank of a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, spec_from_dict
from hpcddp.core.malloc import retain_freed_memory
from hpcddp.core.records import steps_file
from hpcddp.core.stop_signal import block_stop_signal
from hpcddp.worker.faults import fault_of
from hpcddp.worker.finish import fail, reserve
from hpcddp.worker.freed_memory import freed_memory
from hpcddp.worker.local_caches import place_caches, remove_caches
from hpcddp.worker.master import NoAddressError, check_address
from hpcddp.worker.ranks import Rank, this_rank


def run(spec: dict[str, Any]) -> dict[str, object]:
    """Runs `spec` (of jobspec.spec_to_dict) in this rank; a small summary for the launcher.

    Raises what is wrong with the spec or the launcher's variables, or that the attempt has records already. Any later error
    is recorded in the attempt's folder, and the process ends with exit code 1 without returning: srun then ends the other ranks.
    """
    block_stop_signal()
    job = spec_from_dict(spec)
    rank = this_rank(job.backend, local_device=job.local_device)
    attempt = job.attempt_dir(rank.job, rank.restart)
    if steps_file(attempt, rank.rank).exists() or (attempt / "comm.json").exists():
        raise HpcddpError(f"{attempt} has the records of an earlier worker of job {rank.job}: run this point in a job of its own")
    try:
        if rank.rank == 0:
            reserve(attempt)
        if freed_memory(job.point) == "kept":
            retain_freed_memory()
        check_address(rank)
        if _has_caches(job):
            place_caches(rank)
        summary = _run_attempt(job, rank, attempt)
        if _has_caches(job) and rank.local_rank == 0:
            remove_caches(rank)
        return summary
    except BaseException as error:
        if _has_caches(job):
            remove_caches(rank)
        # Where one rank does not find the address, rank 0 may wait for it: it would record nothing for minutes.
        fail(attempt, rank, error, fault_of(error, rank, job.point), for_all=isinstance(error, NoAddressError))


def _has_caches(job: JobSpec) -> bool:
    """Whether libraries may compile for a GPU, on a node that is not the user's own machine."""
    return job.backend == "slurm" and job.point.device == "cuda"


def _run_attempt(job: JobSpec, rank: Rank, attempt: Path) -> dict[str, object]:
    try:
        from hpcddp.worker.attempt import run_attempt
        from hpcddp.worker.script_run import run_script
    except ModuleNotFoundError as error:
        raise HpcddpError(
            f"{sys.executable} has no {error.name}: the modules and python that the profile names under `compute` must bring it"
        ) from error
    return (run_script if job.script else run_attempt)(job, rank, attempt)
