"""A run whose loop is in a script of the user's own: started here, in every rank, as if by `python train.py --depth 12`.

The script finds the variables that torch.distributed's env:// reads, and forms its process group by itself. The probe in it finds
the run that it belongs to by `current_job`; ranks watch each other from before the script's first line to behind its last.
"""

from __future__ import annotations

import os
import runpy
import socket
from pathlib import Path

import torch.distributed as dist

from hpcddp.core.jobspec import JobSpec, ScriptPlace
from hpcddp.worker.attempt import check_launched
from hpcddp.worker.comm.transport import logging_script
from hpcddp.worker.gpus import require_gpu
from hpcddp.worker.master import Store
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import TIMEOUT, join_store
from hpcddp.worker.script_job import ScriptJob, become_job
from hpcddp.worker.script_place import enter_place, set_rank_variables
from hpcddp.worker.watchdog.thread import Watchdog


def run_script(spec: JobSpec, rank: Rank, attempt: Path) -> dict[str, object]:
    """Runs the script to its end; the summary of this rank. Errors are the caller's to record."""
    check_launched(spec.point, rank)
    assert spec.script is not None
    if spec.point.device == "cuda":
        require_gpu(rank)
    store = join_store(rank)
    with Watchdog(rank, store, attempt, spec.point) as watchdog:
        become_job(job := ScriptJob(spec, rank, store, watchdog, attempt))
        _set_environment(spec, rank, store)
        with logging_script(spec.point.device):
            _run(job, spec.script)
        job.check()
        _leave(job)
    steps, passed = (job.measured.steps, job.measured.gates_passed) if job.measured else (0, None)
    return {"point": spec.point.id, "run": spec.run, "rank": rank.rank, "steps": steps, "gates_passed": passed}


def _set_environment(spec: JobSpec, rank: Rank, store: Store) -> None:
    """The variables of its ranks; torchrun has set all of them already, for a store that listens."""
    os.environ["HPCDDP_CLUSTER"] = spec.point.cluster
    if rank.launcher == "torchrun":
        return
    if rank.rank == 0:
        with socket.create_server(("", 0)) as listener:  # nobody listens there just now: at the job's own port the ranks met
            port = listener.getsockname()[1]
        store.set("hpcddp/script's port", str(port))
    set_rank_variables(rank, int(store.get("hpcddp/script's port")))


def _run(job: ScriptJob, place: ScriptPlace) -> None:
    """exit(0) is its end, and behind all that is measured a loop by `next` that gets no further batch."""
    script = enter_place(place, job.spec.point.workload)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    except StopIteration:
        if job.measured is None:
            raise
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()  # its threads may still hold tensors, and would abort the process


def _leave(job: ScriptJob) -> None:
    """Rank 0, which holds the store, ends last."""
    rank = job.rank
    if rank.rank:
        job.watchdog.leave()
    job.store.set(f"hpcddp/script ended/{rank.rank}", "")
    while rank.rank == 0 and _some_run_on(job):
        pass
    if rank.rank == 0:
        job.watchdog.leave()


def _some_run_on(job: ScriptJob) -> bool:
    """Whether a rank has not come to the end of its script within a while; one that fails ends the job."""
    keys = [f"hpcddp/script ended/{peer}" for peer in range(job.rank.world)]
    try:
        job.store.wait(keys, TIMEOUT)
    except RuntimeError:
        return True
    return False
