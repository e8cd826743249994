"""A Slurm cluster, from a node that has its commands. Runs whose job scripts are the same become the tasks of one array.

A submission has a folder of its own, `.jobs/LABEL.rK.TOKEN`, which holds script, logs and submitit's files and is the job's
working directory. Once the id is known, `.jobs/JOBID` becomes a relative link to it: a rename would pull the paths from under
a job that runs already, and a folder named by %j does not exist yet when a job starts at once.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hpcddp.backends import slurm_commands
from hpcddp.backends.base import Batch, JobState, Submission, job_name
from hpcddp.backends.slurm_allocation import cancel_tasks
from hpcddp.backends.slurm_commands import UnansweredError, too_old, version_here
from hpcddp.backends.slurm_recovery import find_job, retry
from hpcddp.backends.slurm_send import send
from hpcddp.backends.slurm_states import job_states
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import FullError, HpcddpError, UsageError
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.launcher import command_from_snapshot, read_task
from hpcddp.core.point import point_from_dict
from hpcddp.core.run_root import Study
from hpcddp.script.render import ScriptLaunch, folders_of


class SlurmBackend:
    """Job ids are Slurm's."""

    name = "slurm"

    def __init__(self, rules: SlurmRules = SlurmRules(), *studies: Study) -> None:  # noqa: B008 - a frozen value
        """`rules` are for submitting, `studies` those whose jobs are polled."""
        self._rules = rules
        self._studies = studies
        self._next_s = 0.0

    @functools.cached_property
    def accounts(self) -> list[str] | None:
        """The accounts this user may charge; None where Slurm does not say. Queried once, since that may take long."""
        return slurm_commands.accounts()

    def check(self, submission: Submission) -> None:
        """UsageError for an account that is not the user's, or a folder whose name sbatch would take for a pattern."""
        self.check_folder(submission.study.folder, submission.account)

    def check_folder(self, place: Path, account: str | None) -> None:
        """The same of a job that writes there and is charged to that account."""
        if not self._is_login_node:
            raise HpcddpError("This machine has no `srun`. Submit from a login node of the cluster.")
        if self._older_slurm:
            raise HpcddpError(f"{self._older_slurm}. Nothing was submitted. `hpcddp render` still writes the script.")
        folder = str(place)
        if re.search(r"[%\\\n]", folder):
            raise UsageError(
                f"{folder!r}: sbatch cannot use a path with %, a backslash or a line break. Choose another with --runs."
            )
        known = self.accounts
        if account is not None and known is not None and account.lower() not in map(str.lower, known):
            raise UsageError(f"You cannot charge account `{account}`. Slurm lists {', '.join(known)}.")

    @functools.cached_property
    def _is_login_node(self) -> bool:
        return shutil.which("srun") is not None

    @functools.cached_property
    def _older_slurm(self) -> str | None:
        return too_old(version_here())

    def batches(self, submissions: Sequence[Submission]) -> list[Batch]:
        """Runs of the same shape in one batch, as far as MaxArraySize allows."""
        return in_arrays(submissions, lambda: self.max_array_size)

    @functools.cached_property
    def max_array_size(self) -> int:
        """Tasks of an array at most; 0: there are no arrays."""
        if self._rules.max_array_size is not None:
            return self._rules.max_array_size
        try:
            return retry(slurm_commands.max_array_size)
        except UnansweredError as error:
            raise HpcddpError(f"{error}. No more was submitted. Submit again when Slurm answers.") from error

    def submit(self, submission: Submission) -> str:
        return self.submit_batch(Batch(submissions=(submission,)))[0]

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
            job = send(batch.name, command, lambda: self.find(batch.study, batch.name, batch.token))
        except FullError:
            shutil.rmtree(folder)
            raise
        _link(batch.study.job_dir(job), folder)
        if not batch.is_array and batch.one_allocation is None:
            return [job]
        return [f"{job}{'_' if batch.is_array else '+'}{task}" for task in range(len(batch.submissions))]

    def find(self, study: Study, name: str, token: str) -> str | None:
        """By its name and folder, and makes its link. A job without a folder was never submitted."""
        folder = study.jobs / _folder_name(name, token)
        if not folder.is_dir():
            return None
        job = find_job(name, folder)
        if job is not None:
            _link(study.job_dir(job), folder)
        return job

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """By squeue and sacct: see slurm_states."""
        return job_states(self._studies, jobs) if jobs else {}

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Those that wait or run under their name; a job that several runs share goes with the last of them."""
        states = self.poll(jobs)
        if failure := next((state.detail for state in states.values() if state.phase == "unknown"), None):
            raise HpcddpError(f"{failure}. Nothing was cancelled. Cancel again when Slurm answers.")
        live = [job for job, state in states.items() if state.phase in ("queued", "running")]
        shared = {slurm_id(job) for job in live if "+" in job}
        folders = {job: study.job_dir(job) for study in self._studies for job in shared if study.job_dir(job).is_dir()}
        ended = [job for job in live if "+" not in job]
        for job, folder in folders.items():
            tasks = {int(each.partition("+")[2]) for each in live if slurm_id(each) == job}
            ended += [job] if cancel_tasks(folder, tasks) else _steps_of(job, folder, tasks)
        if ended:
            slurm_commands.query(["scancel", *ended])


def _steps_of(job: str, folder: Path, tasks: Iterable[int]) -> list[str]:
    """The ids of the job's steps that run one of these tasks: one or none."""
    own = [read_task(folder / str(task)) for task in tasks]
    names = {job_name(point_from_dict(task["point"]).label, task["run"]) for task in own}
    return [step for name, step in slurm_commands.running_steps(job).items() if name in names]


def _folder_name(name: str, token: str) -> str:
    """An array's name has its token already."""
    return name if name.endswith(f".{token}") else f"{name}.{token}"


def _link(link: Path, folder: Path) -> None:
    """A relative link, so that a run root can be moved; an older job's of the same id gives way."""
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.symlink_to(folder.name)
    aside.replace(link)


def in_arrays(submissions: Sequence[Submission], max_size: Callable[[], int]) -> list[Batch]:
    """Batches in the order in which they shall start; `max_size`: tasks that an array may have (0: no arrays here). Jobs of
    equal priority start in the order of submission, and tasks in that of their numbers. So a batch holds runs of one repetition
    only, unless all that follow are of its shape: the second run of any point comes after the first of all points, and a
    cluster that slows down slows all points alike.
    """
    shapes = _shapes(submissions)
    groups: list[list[Submission]] = []
    for _, of_repetition in itertools.groupby(submissions, key=lambda submission: submission.spec.run):
        by_shape: dict[str, list[Submission]] = {}
        for submission in of_repetition:
            by_shape.setdefault(shapes[submission.spec.label], []).append(submission)
        for shape, same in by_shape.items():
            if groups and shapes[groups[-1][0].spec.label] == shape:
                groups[-1] += same
            else:
                groups.append(same)
    return [Batch(submissions=part) for group in groups for part in _slices(group, max_size)]


def _shapes(submissions: Sequence[Submission]) -> dict[str, str]:
    """By label, a text that is the same for points whose runs may be one array: the script without the array's name and folder.
    The script of a point whose shape no other has is not rendered.
    """
    points: dict[Hashable, dict[str, Submission]] = {}
    for submission in submissions:
        points.setdefault(submission.shape, {})[submission.spec.label] = submission
    return {
        label: _script(submission) if len(alike) > 1 else label
        for alike in points.values()
        for label, submission in alike.items()
    }


def _script(submission: Submission) -> str:
    if submission.render_text is None:
        return submission.spec.label
    command = command_from_snapshot(submission.python, submission.code, "", submission.spec.point, submission.trusted)
    launch = ScriptLaunch(command=command, array="", folders=folders_of(submission.spec))
    return f"{submission.entry}\n{submission.render_text(launch)}"


def _slices(group: list[Submission], max_size: Callable[[], int]) -> Iterator[tuple[Submission, ...]]:
    size = max(1, max_size()) if len(group) > 1 else 1
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])
