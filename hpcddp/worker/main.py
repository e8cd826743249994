"""The worker: one point, one run, in every rank of a job.

Caches of compiled code lie on the node's own disk: a parallel file system has no use for thousands of small files, and its locks
fail the data bases that MIOpen writes ("disk I/O error"). Standard library only: all of it comes before torch.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, spec_from_dict
from hpcddp.core.malloc import freed_memory, retain_freed_memory
from hpcddp.core.records import steps_file
from hpcddp.core.stop_signal import block_stop_signal
from hpcddp.worker.disk import writable_folder
from hpcddp.worker.faults import fault_of
from hpcddp.worker.finish import fail, reserve
from hpcddp.worker.master import NoAddressError, check_address
from hpcddp.worker.ranks import Rank, this_rank

VARIABLES = {
    "MIOPEN_USER_DB_PATH": "miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
}
"""What says where each library's cache lies, and its folder there; torch.compile's is in the node's temporary folder already."""


def place_caches(rank: Rank, env: MutableMapping[str, str] = os.environ) -> None:
    """Caches that neither user nor site has placed go into a folder of this attempt, if it is the user's own: they are run."""
    folder = node_caches(rank, env)
    if _is_made(folder):
        for name, own in VARIABLES.items():
            env.setdefault(name, str(folder / own))


def remove_caches(rank: Rank, env: MutableMapping[str, str] = os.environ) -> None:
    """When all of the node have trained: in a temporary folder that is not the job's own they would stay."""
    shutil.rmtree(node_caches(rank, env), ignore_errors=True)


def node_caches(rank: Rank, env: MutableMapping[str, str] = os.environ) -> Path:
    """The same for all ranks of a node; other users and other jobs have theirs."""
    return writable_folder(env) / f"hpcddp-{os.getuid()}-{rank.job}-{rank.restart}"


def _is_made(folder: Path) -> bool:
    """Whether it is there, made by this user for nobody else: by this rank, or by another one of the node."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


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
        raise HpcddpError(f"{attempt} has records of an earlier worker of job {rank.job}. Run this point in a separate job.")
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
            f"{sys.executable} has no {error.name}. Add it to the modules or the python under `compute` of the profile."
        ) from error
    return (run_script if job.script else run_attempt)(job, rank, attempt)
