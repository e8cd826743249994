"""A Slurm cluster, from a node that has its commands.

A submission has a folder of its own, `.jobs/LABEL.rK.TOKEN`, which holds script, logs and submitit's files and is the job's
working directory. Once the id is known, `.jobs/JOBID` becomes a relative link to it: a rename would pull the paths from under
a job that runs already, and a folder named by %j does not exist yet when a job starts at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpcddp.backends import slurm_commands, slurm_recovery
from hpcddp.backends.base import Batch, JobState, Submission, job_name
from hpcddp.backends.slurm_allocation import cancel_tasks
from hpcddp.backends.slurm_array import in_arrays
from hpcddp.backends.slurm_commands import IN_DOUBT, QUEUED, RETRIES, RUNNING, Row, UnansweredError
from hpcddp.backends.slurm_time import time_s
from hpcddp.backends.slurm_words import ended_words, waiting_words
from hpcddp.cluster.profile import SlurmRules
from hpcddp.core.array_tasks import read_task
from hpcddp.core.errors import FullError, HpcddpError, RefusedError, UsageError
from hpcddp.core.job_ids import base_id, slurm_id
from hpcddp.core.point import point_from_dict
from hpcddp.core.run_root import Study

SEND_AGAIN_S = (2.0, 10.0, 30.0)
"""Pauses after a submission that did not reach its controller, before it is sent again."""


_FULL = re.compile(rf"(Assoc|QOS)\w*Submit\w*|Resource temporarily unavailable|{RETRIES}")
"""sbatch's words at a limit on jobs that wait or run (MaxSubmitJobs of an association or QOS, MaxJobCount of the cluster)."""


class SlurmBackend:
    """Job ids are Slurm's."""

    name = "slurm"

    def __init__(self, rules: SlurmRules = SlurmRules(), *studies: Study) -> None:  # noqa: B008 - a frozen value
        """`rules` are for submitting, `studies` those whose jobs are asked about."""
        self._rules = rules
        self._studies = studies
        self._next_s = 0.0

    @functools.cached_property
    def accounts(self) -> list[str] | None:
        """The accounts this user may charge; None where Slurm does not say. Asked once, since that may take long."""
        return slurm_commands.accounts()

    def check(self, request: Submission) -> None:
        """UsageError for an account that is not the user's, or a folder whose name sbatch would take for a pattern."""
        if not self._is_login_node:
            raise HpcddpError("no `srun` on this machine: submit from a login node of the cluster")
        folder = str(request.study.folder)
        if re.search(r"[%\\\n]", folder):
            raise UsageError(f"{folder!r}: a path with %, a backslash or a line break means something else to sbatch; use --runs")
        known = self.accounts
        if request.account is not None and known is not None and request.account.lower() not in map(str.lower, known):
            raise UsageError(f"account `{request.account}` is not yours to charge; Slurm lists {', '.join(known)}")

    @functools.cached_property
    def _is_login_node(self) -> bool:
        return shutil.which("srun") is not None

    def batches(self, requests: Sequence[Submission]) -> list[Batch]:
        """Runs of the same shape in one batch, as far as MaxArraySize allows."""
        return in_arrays(requests, lambda: self.max_array_size)

    @functools.cached_property
    def max_array_size(self) -> int:
        """Tasks of an array at most; 0: there are no arrays."""
        if self._rules.max_array_size is not None:
            return self._rules.max_array_size
        try:
            return slurm_recovery.patiently(slurm_commands.max_array_size)
        except UnansweredError as error:
            raise HpcddpError(f"{error}. Nothing more was submitted: submit again when Slurm answers") from error

    def submit(self, request: Submission) -> str:
        return self.submit_batch(Batch(requests=(request,)))[0]

    def submit_batch(self, batch: Batch) -> list[str]:
        """By sbatch; RefusedError with Slurm's own words."""
        from hpcddp.backends.slurm_job_files import prepare

        folder = batch.study.jobs / _folder_name(batch.name, batch.token)
        command = prepare(folder, batch)
        if (wait_s := self._next_s - time.monotonic()) > 0:
            time.sleep(wait_s)
        if self._rules.submissions_per_s:
            self._next_s = time.monotonic() + 1 / self._rules.submissions_per_s
        try:
            job = self._send(batch, command)
        except RefusedError as error:
            if _FULL.search(str(error)):
                shutil.rmtree(folder)
                raise FullError(str(error)) from None
            raise
        _link(batch.study.job_dir(job), folder)
        if not batch.is_array and batch.one_allocation is None:
            return [job]
        return [f"{job}{'_' if batch.is_array else '+'}{task}" for task in range(len(batch.requests))]

    def _send(self, request: Batch, command: Sequence[str]) -> str:
        for pause_s in SEND_AGAIN_S:
            if job := self._send_once(request, command):
                return job
            time.sleep(pause_s)
        raise HpcddpError(f"{request.name}: Slurm's controller comes and goes; the job is not queued, submit again later")

    def _send_once(self, request: Batch, command: Sequence[str]) -> str | None:
        """None where no answer came and the job surely is not queued: it may be sent again."""
        try:
            done = slurm_commands.run(command)
            failed = done.returncode != 0
            words = done.stderr.strip() or done.stdout.strip() or f"sbatch ended with {done.returncode} and said nothing"
            if not failed and (found := re.search(r"^Submitted batch job (\d+)", done.stdout, re.MULTILINE)):
                return found.group(1)
            if done.returncode > 0 and not IN_DOUBT.search(words):
                raise RefusedError(f"{request.name}: {words}")
        except UnansweredError as error:
            failed, words = True, str(error)
        doubt = f"{request.name}: {words}. Whether it is queued will be looked up when you submit again"
        try:
            job = self.find(request.study, request.name, request.token)
        except HpcddpError as error:
            raise HpcddpError(doubt) from error
        if job is None and not failed:
            raise HpcddpError(doubt)  # accepted, but where?
        if job is None and RETRIES in words:
            raise RefusedError(f"{request.name}: {words}")
        return job

    def find(self, study: Study, name: str, token: str) -> str | None:
        """In the queue, then among the jobs of the last seven days where there is accounting. Makes its link if need be.

        sbatch was never asked for a job that has no folder.
        """
        folder = study.jobs / _folder_name(name, token)
        if not folder.is_dir():
            return None
        slurm_recovery.wait_for_sbatch(folder)
        job = slurm_recovery.look_up(lambda: _look(name, folder.name))
        if job is not None:
            _link(study.job_dir(job), folder)
        return job

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """One squeue call, one of sacct for jobs that are over, and one more for what neither knows: another user's jobs.

        While the controller is away, what accounting saw end has ended, and the rest is unknown. Of runs in one allocation, its
        state.
        """
        if not jobs:
            return {}
        ids = {(slurm_id(job), name) for job, name in jobs.items()}
        queue, over, doubt = self._rows_of(ids)
        return {job: _state(name, queue.get(slurm_id(job)), over.get(slurm_id(job)), doubt) for job, name in jobs.items()}

    def _rows_of(self, jobs: Iterable[tuple[str, str]]) -> tuple[dict[str, Row], dict[str, Row], str | None]:
        """The rows of squeue and of sacct by id, of these ids and names; and why squeue did not answer."""
        ids = {job for job, _ in jobs}
        queue, over, doubt = dict[str, Row](), dict[str, Row](), None
        try:
            queue = self._own(ids, slurm_commands.my_jobs())
        except HpcddpError as error:
            doubt = str(error)
        left = [(job, name) for job, name in jobs if not _is_live(queue.get(job), name)]
        with contextlib.suppress(HpcddpError):
            over = self._own(ids, slurm_commands.accounted({job for job, _ in left}))
        lost = {name for job, name in left if not _has_ended(name, queue.get(job), over.get(job))}
        if lost and doubt is None:
            try:
                queue |= self._own(ids, slurm_commands.jobs_named(lost))
            except HpcddpError as error:
                doubt = str(error)
        return queue, over, doubt

    def _own(self, jobs: Iterable[str], rows: Mapping[str, Row]) -> dict[str, Row]:
        """The rows of the jobs, but for those of other studies: an id is given out again that a controller forgot, maybe to a run
        of the same name. Where a job works, the study's link says too.
        """
        found = {job: rows[job] for job in jobs if job in rows}
        folders = {array: self._folders_of(array) for array in {base_id(job) for job in found}}
        return {
            job: row for job, row in found.items() if not folders[base_id(job)] or Path(row.workdir).name in folders[base_id(job)]
        }

    def _folders_of(self, job: str) -> list[str]:
        """By the links of the studies."""
        links = (study.job_dir(job) for study in self._studies)
        return [os.readlink(link) for link in links if link.is_symlink()]

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Those that wait or run under their name; HpcddpError with Slurm's words. A job that several runs share goes with its
        last one.
        """
        states = self.poll(jobs)
        if doubt := next((state.detail for state in states.values() if state.phase == "unknown"), None):
            raise HpcddpError(f"{doubt}. Nothing was cancelled; cancel again when Slurm answers")
        live = [job for job, state in states.items() if state.phase in ("queued", "running")]
        shared = {slurm_id(job) for job in live if "+" in job}
        folders = {job: study.job_dir(job) for study in self._studies for job in shared if study.job_dir(job).is_dir()}
        ended = [job for job in live if "+" not in job]
        for job, folder in folders.items():
            tasks = {int(each.partition("+")[2]) for each in live if slurm_id(each) == job}
            ended += [job] if cancel_tasks(folder, tasks) else _steps_of(job, folder, tasks)
        if ended:
            slurm_commands.ask(["scancel", *ended])


def _state(name: str, queued: Row | None, over: Row | None, doubt: str | None) -> JobState:
    """From the rows of squeue and sacct under that id; another job's do not count (sacct's newest are nameless for a moment).
    `doubt`: why squeue did not answer.
    """
    row = queued if _is(queued, name) else None
    told = over if _is(over, name) else None
    if row is not None and row.state in QUEUED:
        return JobState(phase="queued", detail=waiting_words(row.reason), start=row.start if row.start[:1].isdigit() else None)
    if row is not None and row.state in RUNNING:
        return JobState(
            phase="running",
            detail=None if row.state == "RUNNING" else row.state.lower(),
            nodes=row.nodes or None,
            time_limit=row.time_limit or None,
            time_left_s=time_s(row.time_left),
        )
    if told is not None and told.state in QUEUED | RUNNING:
        told = None  # sacct is late, or slurmctld has lost the job: squeue knows what waits and runs
    ended = told or row
    if ended is None and doubt is not None:
        late = f"; accounting has it as {over.state}" if over is not None and _is(over, name) else ""
        return JobState(phase="unknown", detail=f"{doubt}{late}")
    if ended is None:
        return JobState(phase="failed", detail="Slurm does not know this job any more")
    if ended.state == "COMPLETED":
        return JobState(phase="done", nodes=ended.nodes or None)
    return JobState(
        phase="failed",
        detail=ended_words(ended.state, ended.exit_code),
        nodes=ended.nodes or None,
        word=ended.state,
        by=_user(ended.by),
        time_limit=ended.time_limit or None,
    )


def _user(number: str | None) -> str | None:
    """The user's name, the number where nobody here has it."""
    if number is None or not number.isdecimal():
        return number
    try:
        return pwd.getpwuid(int(number)).pw_name
    except KeyError:
        return f"user {number}"


def _has_ended(name: str, *rows: Row | None) -> bool:
    """Whether one of the rows shows a job of that name at its end."""
    return any(_is(row, name) and row.state not in QUEUED | RUNNING for row in rows if row is not None)


def _steps_of(job: str, folder: Path, tasks: Iterable[int]) -> list[str]:
    """The steps of the job that run one of these tasks of it: one or none."""
    own = [read_task(folder / str(task)) for task in tasks]
    names = {job_name(point_from_dict(task["point"]).label, task["run"]) for task in own}
    return [step for name, step in slurm_commands.running_steps(job).items() if name in names]


def _is_live(row: Row | None, name: str) -> bool:
    return row is not None and _is(row, name) and row.state in QUEUED | RUNNING


def _is(row: Row | None, name: str) -> bool:
    return row is not None and row.name == name


def _folder_name(name: str, token: str) -> str:
    """An array's name has its token already."""
    return name if name.endswith(f".{token}") else f"{name}.{token}"


def _look(name: str, folder: str) -> str | None:
    """By name and working directory."""
    found = _in_folder(slurm_commands.jobs_named([name]), name, folder)
    if found is None:
        with contextlib.suppress(HpcddpError):
            found = _in_folder(slurm_commands.accounted_by_name(name), name, folder)
    return found


def _in_folder(rows: Mapping[str, Row], name: str, folder: str) -> str | None:
    return next((base_id(job) for job, row in rows.items() if row.name == name and Path(row.workdir).name == folder), None)


def _link(link: Path, folder: Path) -> None:
    """A relative link, so that a run root can be moved; an older job's of the same id gives way."""
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.symlink_to(folder.name)
    aside.replace(link)
