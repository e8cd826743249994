"""This machine (Linux) as a cluster: runs are queued in the study, and one detached runner executes them one after another."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

from hpcddp.backends import local_queue as queue
from hpcddp.backends.base import Batch, JobState, Submission
from hpcddp.cluster.environment import Environment
from hpcddp.core.bootstrap import PARENT_VARIABLE
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.launcher import trust_option
from hpcddp.core.records import not_for_others
from hpcddp.core.run_root import Study
from hpcddp.script.resources import cores_per_rank


class LocalBackend:
    """Job ids are `L0001`, ... within the study."""

    name = "local"

    def __init__(self, study: Study) -> None:
        self._study = Study(study.folder.absolute())

    def check(self, submission: Submission) -> None:
        """UsageError for more than one node."""
        nodes = submission.spec.point.layout.nodes
        if nodes > 1:
            words = f"layout.nodes is {nodes}; this machine is one node. Use layout.gpus_per_node."
            raise UsageError(f"{submission.spec.label}: {words}")

    def submit(self, submission: Submission) -> str:
        """Queues the run, and starts a runner where none is alive."""
        study = self._study
        with not_for_others(submission.trusted):
            study.jobs.mkdir(parents=True, exist_ok=True)
        with queue.queue_lock(study):
            lock = queue.take_runner_lock(study)
            if lock is None:
                return self._add(submission)
            try:
                queue.fail_all(study, _WITHOUT_RUNNER)
                job = self._add(submission)
                _start_runner(study, submission, lock)
            finally:
                os.close(lock)
            return job

    def _add(self, submission: Submission) -> str:
        with not_for_others(submission.trusted):
            return queue.add(self._study, self._entry(submission))

    def _entry(self, submission: Submission) -> queue.Entry:
        point = submission.spec.point
        is_default = submission.python == Environment().python
        return queue.Entry(
            name=submission.name,
            token=submission.token,
            entry=submission.entry,
            spec=spec_to_dict(submission.spec),
            code=submission.code.name,
            python=shlex.quote(sys.executable) if is_default else submission.python,
            ranks=point.ranks,
            threads_per_rank=threads_per_rank(point.ranks, cores_per_rank(point)),
            walltime_s=submission.walltime_min * 60,
            device=point.device,
            trusted=submission.trusted,
        )

    def batches(self, submissions: Sequence[Submission]) -> list[Batch]:
        """One run each: they run one after another anyway."""
        return [Batch(submissions=(submission,)) for submission in submissions]

    def submit_batch(self, batch: Batch) -> list[str]:
        return [self.submit(submission) for submission in batch.submissions]

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """From the state files; a run whose runner has gone has failed."""
        if not jobs or not self._study.jobs.is_dir():
            return {job: _NOT_QUEUED for job in jobs}
        with queue.queue_lock(self._study):
            alive = queue.runner_alive(self._study)
            return {job: self._state(job, name, alive) for job, name in jobs.items()}

    def _state(self, job: str, name: str, alive: bool | None) -> JobState:
        state = queue.read_state(self._study, job)
        if state is None or queue.read_entry(self._study, job).name != name:
            return _NOT_QUEUED
        if alive is False and state.phase in _WITHOUT_RUNNER:
            return JobState(phase="failed", detail=_WITHOUT_RUNNER[state.phase])
        if state.phase == "running":
            limit_s = queue.read_entry(self._study, job).walltime_s
            left_s = limit_s - queue.running_s(self._study, job)
            return JobState(phase="running", detail=state.reason, time_limit=f"{limit_s / 60:.0f}:00", time_left_s=left_s)
        return JobState(phase=state.phase, detail=state.reason or ("waits for earlier runs" if state.phase == "queued" else None))

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Queued runs are marked as failed, the running one is ended by its runner."""
        states = self.poll(jobs)
        with queue.queue_lock(self._study):
            for job in jobs:
                if states[job].phase == "queued":
                    queue.write_job_state(self._study, job, "failed", "cancelled")
                if states[job].phase == "running":
                    queue.cancel_file(self._study, job).touch()

    def find(self, study: Study, name: str, token: str) -> str | None:
        """The run with that token in its spec.json."""
        complete = (job for job in queue.jobs(self._study) if queue.read_state(self._study, job) is not None)
        return next((job for job in complete if queue.read_entry(self._study, job).token == token), None)


_WITHOUT_RUNNER = {"running": "its runner process died", "queued": "its runner process died before it started"}

_NOT_QUEUED = JobState(phase="failed", detail="no longer in the local queue")


def threads_per_rank(ranks: int, cores: int | None) -> int:
    """The cores that the point asks for, at most an equal share of those this process may use, at least one."""
    share = max(1, len(os.sched_getaffinity(0)) // ranks)
    return share if cores is None else min(share, cores)


def _open_unless_link(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NOFOLLOW, 0o666)


def _start_runner(study: Study, submission: Submission, lock: int) -> None:
    """Detached: in a session of its own, outside any checkout, with nothing of this terminal."""
    trust = trust_option(submission.trusted)
    runner = ["--module", "hpcddp.backends.local_runner", str(study.folder), str(lock), *trust]
    command = [sys.executable, "-u", str(submission.code / "bootstrap.py"), *trust, *runner]
    environment = {name: value for name, value in os.environ.items() if name != PARENT_VARIABLE}
    try:
        with open(study.jobs / "runner.log", "ab", opener=_open_unless_link) as log:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=study.jobs,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock],
            )
    except OSError as error:
        raise HpcddpError(f"the runner could not be started: {error}; see {study.jobs / 'runner.log'}") from error
    process.returncode = 0  # It is meant to outlive this process: nobody waits for it, and Popen must not warn of that.
    queue.write_runner(study, process.pid)
