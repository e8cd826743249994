"""A rank of a job that runs a function of the user's own: submitit's job side, on the code of submission time.

Started from the snapshot as `bootstrap.py --module hpcddp.backends.function_task BASE FOLDER TOKEN PYTHON`: BASE holds snapshot
and pickles, FOLDER is the executor's, below BASE where it names the job (`%j`), and TOKEN the submission's. The bootstrap has
found that BASE is the user's own before this is imported; nothing is unpickled from elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

from submitit.core.plugins import get_job_environments
from submitit.core.submission import process_job
from submitit.core.utils import DelayedSubmission, JobPaths
from submitit.slurm.slurm import SlurmJobEnvironment

from hpcddp.core.bootstrap import ownership_problems
from hpcddp.core.stop_signal import request_requeue


def main(base: Path, folder: Path, token: str, python: str) -> None:
    """Runs the function and leaves its result where submitit looks for it. `python`: the version it was pickled by."""
    environment = FunctionEnvironment()
    paths = JobPaths(folder, job_id=environment.job_id)
    _place_pickle(base, paths, f"{token}_{environment.array_task_id or 0}.pkl")
    if found := list(ownership_problems(paths.folder, (), ())) if paths.folder != base else []:
        sys.exit("\n".join(found))
    if (here := ".".join(map(str, sys.version_info[:2]))) != python and environment.global_rank == 0:
        print(f"hpcddp: {other_python(python, here)}", file=sys.stderr, flush=True)
    sys.path.insert(1, os.getcwd())  # behind the snapshot, for what is imported later than at submission
    get_job_environments()["slurm"] = environment  # type: ignore[index]
    process_job(folder)


class FunctionEnvironment(SlurmJobEnvironment):
    """Slurm's, with the stop signal held back until there is somebody to hear it."""

    @classmethod
    def name(cls) -> str:
        return "slurm"

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        super()._handle_signals(paths, submission)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})  # the bootstrap has blocked it

    def _requeue(self, countdown: int) -> None:
        """By the batch script where there is no scontrol: in a container."""
        if shutil.which("scontrol") or not request_requeue():
            super()._requeue(countdown)


def other_python(pickled_by: str, here: str) -> str:
    """What may go wrong where login node and job have different versions, and the next step."""
    return (
        f"pickled by Python {pickled_by} and run by {here}: a function of __main__, or a lambda, may not load; put it into a "
        f"module of its own, or submit with Python {here}"
    )


def _place_pickle(base: Path, paths: JobPaths, name: str) -> None:
    """Puts it where submitit looks for it, as the submission does when it hears the job's number: it may have been killed, or
    still wait for the answer.
    """
    with contextlib.suppress(OSError):
        paths.folder.mkdir(parents=True, exist_ok=True)
        if not paths.submitted_pickle.exists():
            os.link(base / name, paths.submitted_pickle)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5])
