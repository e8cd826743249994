"""A Slurm cluster, from a node that has its commands.

A submission has a folder of its own, `.jobs/LABEL.rK.TOKEN`, which holds script, logs and submitit's files and is the job's
working directory. Once the id is known, `.jobs/JOBID` becomes a relative link to it: a rename would pull the paths from under
a job that runs already, and a folder named by %j does not exist yet when a job starts at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcddp.backends import slurm_commands
from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.slurm_commands import QUEUED, RUNNING, Row, ended_words, waiting_words
from hpcddp.entry import call
from hpcddp.errors import HpcddpError, RefusedError, UsageError
from hpcddp.jobspec import spec_to_dict
from hpcddp.runroot import Study

PAUSE_S = 0.02
"""Between two submissions: at most 50 a second reach the controller that everybody shares."""

LOOK_AGAIN_S = (0.5, 2.0, 5.0)
"""After a submission that timed out: a controller that comes back works through what it was sent."""

_IN_DOUBT = re.compile(
    r"timed out|unable to contact|connection refused|zero bytes|transport endpoint|communication|message (send|receive) failure",
    re.IGNORECASE,
)
"""sbatch's words when it is not known what became of the job (slurm_errno.c). Slurm 22.05, controller frozen: `Socket timed out
on send/recv operation`, and the job was queued."""


class SlurmBackend:
    """Job ids are Slurm's."""

    name = "slurm"

    def __init__(self) -> None:
        self._next_s = 0.0

    @functools.cached_property
    def accounts(self) -> list[str] | None:
        """The accounts this user may charge; None where Slurm does not say. Asked once, since that may take long."""
        return slurm_commands.accounts()

    def check(self, request: Submission) -> None:
        """UsageError for an account that is not the user's, or a folder whose name sbatch would take for a pattern."""
        if shutil.which("srun") is None:
            raise HpcddpError("no `srun` on this machine: submit from a login node of the cluster")
        folder = str(request.study.folder)
        if re.search(r"[%\\\n]", folder):
            raise UsageError(f"{folder!r}: a path with %, a backslash or a line break means something else to sbatch; use --runs")
        known = self.accounts
        if request.account is not None and known is not None and request.account.lower() not in map(str.lower, known):
            raise UsageError(f"account `{request.account}` is not yours to charge; Slurm lists {', '.join(known)}")

    def submit(self, request: Submission) -> str:
        """Through submitit and sbatch; RefusedError with Slurm's own words."""
        from hpcddp.backends.slurm_executor import TemplateExecutor

        time.sleep(max(0.0, self._next_s - time.monotonic()))
        self._next_s = time.monotonic() + PAUSE_S
        folder = request.study.jobs / _folder_name(request.name, request.token)
        folder.mkdir(parents=True)
        executor = TemplateExecutor(folder, request, lambda command: self._send(request, command))
        job = executor.submit(call, request.entry, spec_to_dict(request.spec)).job_id
        _link(request.study.job_dir(job), folder)
        return job

    def _send(self, request: Submission, command: Sequence[str]) -> str:
        done = slurm_commands.run(command)
        words = done.stderr.strip() or done.stdout.strip() or f"sbatch ended with {done.returncode} and said nothing"
        if done.returncode == 0 and (found := re.search(r"^Submitted batch job (\d+)", done.stdout, re.MULTILINE)):
            return found.group(1)
        if done.returncode and not _IN_DOUBT.search(words):
            raise RefusedError(f"{request.name}: {words}")
        for pause_s in LOOK_AGAIN_S:
            time.sleep(pause_s)
            with contextlib.suppress(HpcddpError):
                if job := self.find(request.name, request.token):
                    return job
        raise HpcddpError(f"{request.name}: {words}. Whether it is queued will be looked up when you submit again")

    def find(self, name: str, token: str) -> str | None:
        """By name and working directory: in the queue, then among the jobs of the last seven days where there is accounting."""
        found = _in_folder(slurm_commands.jobs_named([name]), name, token)
        if found is None:
            with contextlib.suppress(HpcddpError):
                found = _in_folder(slurm_commands.accounted_by_name(name), name, token)
        return found

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """One squeue call, one of sacct for jobs that are over, and one more for what neither knows: another user's jobs."""
        if not jobs:
            return {}
        over: dict[str, Row] = {}
        try:
            queue = slurm_commands.my_jobs()
            left = {job for job, name in jobs.items() if not (_is(queue.get(job), name) and queue[job].state in QUEUED | RUNNING)}
            with contextlib.suppress(HpcddpError):
                over = slurm_commands.accounted(left)
            if lost := {jobs[job] for job in left if not _has_ended(jobs[job], queue.get(job), over.get(job))}:
                queue = {**queue, **slurm_commands.jobs_named(lost)}
        except HpcddpError as error:
            return {job: JobState(phase="unknown", detail=str(error)) for job in jobs}
        return {job: _state(name, queue.get(job), over.get(job)) for job, name in jobs.items()}

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Those that wait or run under their name; HpcddpError with Slurm's words."""
        live = [job for job, state in self.poll(jobs).items() if state.phase in ("queued", "running")]
        if live:
            slurm_commands.ask(["scancel", *live])

    def fetch(self, study: Study) -> None:
        """Nothing: the run root is on a file system that login and compute nodes share."""


def _state(name: str, queued: Row | None, over: Row | None) -> JobState:
    """From the rows of squeue and sacct under that id; another job's do not count (sacct's newest are nameless for a moment)."""
    row = queued if _is(queued, name) else None
    told = over if _is(over, name) else None
    if row is not None and row.state in QUEUED:
        return JobState(phase="queued", detail=waiting_words(row.reason))
    if row is not None and row.state in RUNNING:
        return JobState(phase="running", detail=None if row.state == "RUNNING" else row.state.lower(), nodes=row.nodes or None)
    if told is not None and told.state in QUEUED | RUNNING:
        told = None  # sacct is late, or slurmctld has lost the job: squeue knows what waits and runs
    ended = told or row
    if ended is None:
        return JobState(phase="failed", detail="Slurm does not know this job any more")
    if ended.state == "COMPLETED":
        return JobState(phase="done", nodes=ended.nodes or None)
    return JobState(phase="failed", detail=ended_words(ended), nodes=ended.nodes or None)


def _has_ended(name: str, *rows: Row | None) -> bool:
    """Whether one of the rows shows a job of that name at its end."""
    return any(_is(row, name) and row.state not in QUEUED | RUNNING for row in rows if row is not None)


def _is(row: Row | None, name: str) -> bool:
    return row is not None and row.name == name


def _folder_name(name: str, token: str) -> str:
    return f"{name}.{token}"


def _in_folder(rows: Mapping[str, Row], name: str, token: str) -> str | None:
    folder = _folder_name(name, token)
    return next((job for job, row in rows.items() if row.name == name and Path(row.workdir).name == folder), None)


def _link(link: Path, folder: Path) -> None:
    """A relative link, so that a run root can be moved; an older job's of the same id gives way."""
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.symlink_to(folder.name)
    aside.replace(link)
