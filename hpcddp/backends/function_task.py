"""A rank of a job that runs a function of the user's own: submitit's job side, on the code of submission time.

Started from the snapshot as `bootstrap.py --module hpcddp.backends.function_task BASE FOLDER TOKEN PYTHON [GIDS]`: BASE has
snapshot and pickles, FOLDER is the executor's, below BASE where it names the job (`%j`), and TOKEN the submission's. The
bootstrap has found that BASE is the user's own before this is imported; nothing is unpickled from elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
import signal
import sys
from pathlib import Path

from submitit.core.job_environment import _checkpoint
from submitit.core.plugins import get_job_environments
from submitit.core.submission import process_job
from submitit.core.utils import DelayedSubmission, JobPaths
from submitit.slurm.slurm import SlurmJobEnvironment

from hpcddp.core.bootstrap import ownership_problems
from hpcddp.core.stop_signal import request_requeue


def main(base: Path, folder: Path, token: str, python: str, trusted: str = "") -> None:
    """Runs the function and leaves its result for submitit. `python`: what it was pickled by; `trusted`: groups by number."""
    environment = FunctionEnvironment()
    paths = JobPaths(folder, job_id=environment.job_id)
    _place_pickle(base, paths, f"{token}_{environment.array_task_id or 0}.pkl")
    gids = set(map(int, filter(None, trusted.split(","))))
    if found := list(ownership_problems(paths.folder, (), gids)) if paths.folder != base else []:
        sys.exit("\n".join(found))
    if (here := ".".join(map(str, sys.version_info[:2]))) != python and environment.global_rank == 0:
        print(f"hpcddp: {other_python(python, here)}", file=sys.stderr, flush=True)
    sys.path.insert(1, os.getcwd())  # behind the snapshot, for what is imported later than at submission
    get_job_environments()["slurm"] = environment  # type: ignore[index]
    process_job(folder)


PLAIN = (str, int, float, type(None), Path)
MAX_PARTS, MAX_TEXT = 40, 200
"""Parts and characters of an argument that stands in records as it is."""


class FunctionEnvironment(SlurmJobEnvironment):
    """Slurm's, with the stop signal held back until there is somebody to hear it, and a command line that says what is called."""

    @classmethod
    def name(cls) -> str:
        return "slurm"

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        name_after(submission)
        super()._handle_signals(paths, submission)
        signal.signal(signal.SIGTERM, lambda *_: self._ended_by_slurm(paths, submission))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})  # the bootstrap has blocked it

    def _ended_by_slurm(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """SIGTERM comes before SIGKILL, also to a job that is preempted without a warning: rank 0 writes its checkpoint, once.
        Slurm itself requeues the job, or does not.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.global_rank == 0 and hasattr(submission.function, "checkpoint"):
            _checkpoint(submission, paths.submitted_pickle, submission._timeout_countdown)

    def _requeue(self, countdown: int) -> None:
        """By the batch script where there is no scontrol: in a container. Slurm's SIGTERM then follows the checkpoint."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if shutil.which("scontrol") or not request_requeue():
            super()._requeue(countdown)


def name_after(submission: DelayedSubmission) -> None:
    """This process as the script that the function is of, called with its arguments: the probe's records name a loop by both."""
    function = getattr(submission.function, "func", submission.function)
    names = getattr(function, "__globals__", None) or getattr(type(function).__call__, "__globals__", {})
    name = getattr(function, "__name__", type(function).__name__)
    named = [f"--{key}={_short(value)}" for key, value in submission.kwargs.items()]
    given = [*map(_short, submission.args), *named]
    script = _as_submitted(Path(names["__file__"])) if names.get("__file__") else None  # cloudpickle 3.1.2 drops the code's own
    sys.modules["__main__"].__dict__["__file__"] = script and str(script)
    sys.argv[:] = [str(script or name), name, *given]


def _as_submitted(script: Path) -> Path | None:
    """The snapshot's copy of it where there is one; None where it is no file: of a notebook, say."""
    snapshot = Path(__file__).parents[2]
    places = (script,) if snapshot in script.parents else (snapshot / script.name, script)
    return next((file for file in places if file.is_file()), None)


def _short(value: object) -> str:
    """Text that is the same in every job that is given this value: it itself where it is short and plain, or a hash of it."""
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    if len(parts) <= MAX_PARTS and all(isinstance(part, PLAIN) for part in parts) and len(text := repr(value)) <= MAX_TEXT:
        return text
    try:
        digest = hashlib.sha256(pickle.dumps(value, protocol=5)).hexdigest()[:12]
    except Exception:  # of a class of the user's own
        digest = "?"
    return f"<{type(value).__name__} {digest}>"


def other_python(pickled_by: str, here: str) -> str:
    """What may go wrong where login node and job have different versions, and the next step."""
    return (
        f"The function was pickled by Python {pickled_by} and runs on {here}. Functions of __main__ and lambdas may not load. "
        f"Move the function to a module, or submit with Python {here}."
    )


def _place_pickle(base: Path, paths: JobPaths, name: str) -> None:
    """Puts it where submitit looks for it: the submission, which does the same, may have been killed, or still wait."""
    with contextlib.suppress(OSError):
        paths.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not paths.submitted_pickle.exists():
            os.link(base / name, paths.submitted_pickle)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6])
