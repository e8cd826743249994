"""What every backend offers: submissions as it takes them, job states as it answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from hpcddp.core.jobspec import JobSpec
from hpcddp.core.launcher import WORKER
from hpcddp.core.run_root import Study
from hpcddp.script.render import ScriptLaunch

Phase = Literal["queued", "running", "done", "failed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One run on its way to a cluster."""

    spec: JobSpec
    code: Path
    """The snapshot the job runs."""
    python: str
    """The command that runs Python where the job runs; shell text."""
    walltime_min: float
    """Slurm takes whole minutes: rounded up there."""
    token: str
    """Unique to the submission: a job whose id never arrived is found by it."""
    render_text: Callable[[ScriptLaunch], str] | None = None
    """The job's script around its launch; None where the backend needs no script."""
    shape: Hashable = None
    """Submissions that differ in it have different scripts; those that do not may have."""
    gpus_per_node: int | None = None
    """That are asked for; None where there is no one to ask."""
    account: str | None = None
    trusted: tuple[int, ...] = ()
    """Ids of the groups that may write where the job's code is."""
    entry: str = WORKER
    title: str | None = None
    """The job's name where it is not a run's own."""

    @property
    def study(self) -> Study:
        return Study(Path(self.spec.study))

    @property
    def name(self) -> str:
        return self.title or job_name(self.spec.label, self.spec.run)


@dataclass(frozen=True, kw_only=True)
class OneAllocation:
    """One job in which the runs of a batch are steps, one after the other, on the first of its nodes."""

    nodes: int
    gpus_per_node: int
    preflight: Submission
    """What measures every node before the first run."""
    render_text: Callable[[str, str, Sequence[ScriptLaunch], ScriptLaunch], str]
    """The job's script from its name, its folder, the launch of each run, and that of preflight."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What is submitted in one call: a run, an array of runs with the same job script, or one job for several runs."""

    submissions: tuple[Submission, ...]
    one_allocation: OneAllocation | None = None
    at_once: int | None = None
    """So many of its runs at a time; None: as many as the cluster starts."""
    after: tuple[str, ...] = ()
    """Jobs that must be over, however they ended, before it starts."""
    after_ok: tuple[str, ...] = ()
    """Jobs that must have ended well before it starts."""

    @property
    def token(self) -> str:
        return self.submissions[0].token

    @property
    def study(self) -> Study:
        return self.submissions[0].study

    @property
    def is_array(self) -> bool:
        return len(self.submissions) > 1 and self.one_allocation is None

    @property
    def name(self) -> str:
        """Unique, since Slurm gives ids out again: `n01-g4-x250.1f2e3d4c`; of several runs in one job `n16-30runs.1f2e3d4c`."""
        first = self.submissions[0]
        if self.one_allocation is not None:
            return f"n{self.one_allocation.nodes:02d}-{len(self.submissions)}runs.{self.token}"
        layout, number = first.spec.point.layout, len(self.submissions)
        return f"n{layout.nodes:02d}-g{layout.gpus_per_node}-x{number}.{self.token}" if self.is_array else first.name


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What a backend says of a job."""

    phase: Phase
    detail: str | None = None
    """Why it waits, or how it ended, in words."""
    nodes: str | None = None
    """Where it runs or ran, as the backend writes a list of nodes."""
    word: str | None = None
    """Slurm's own, of a job that ended badly: `TIMEOUT`."""
    by: str | None = None
    """Who cancelled it."""
    time_limit: str | None = None
    """As Slurm writes it: `1-12:00:00`."""
    time_left_s: float | None = None
    """Of a job that runs, until its time limit; None where it has none, or it is not known."""
    start: str | None = None
    """When a job that waits is expected to start, as ISO 8601."""


class Backend(Protocol):
    """A job id is the backend's own; wherever one is passed in, the job's name comes with it, since ids are given out again."""

    @property
    def name(self) -> str: ...

    def check(self, submission: Submission) -> None:
        """Raises UsageError for what is sure to be refused, before anything is written."""

    def submit(self, submission: Submission) -> str:
        """The id of the new job. RefusedError where the backend says no; HpcddpError where it is not known what became of it."""

    def batches(self, submissions: Sequence[Submission]) -> list[Batch]:
        """The submissions as they are to be sent: in their order where that matters, in as few calls as can be."""

    def submit_batch(self, batch: Batch) -> list[str]:
        """`submit` for several: the ids, in the order of the submissions. FullError where the cluster takes no more for now."""

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """A state for every job id of `jobs` (id -> name)."""

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Ends those of the jobs that wait or run."""

    def find(self, study: Study, name: str, token: str) -> str | None:
        """The id of the job of an interrupted submission, which is then as if it had not been; None if there surely is none.
        HpcddpError where that is not known.
        """


def pause_s(waited_s: float) -> float:
    """Between two queries of a queue: 2 s at first, half a minute from ten minutes on, since all users share its controller."""
    return min(max(2.0, waited_s / 20), 30.0)


def wait_for_ends(jobs: Mapping[str, str], backend: Backend) -> Mapping[str, JobState]:
    """Until these jobs (id -> name) have ended, also while their cluster does not answer; their states then."""
    begun_s = time.monotonic()
    while True:
        states = backend.poll(jobs)
        if all(state.phase in ("done", "failed") for state in states.values()):
            return states
        time.sleep(pause_s(time.monotonic() - begun_s))


def unique_name(title: str, token: str) -> str:
    """The name of a job that is of no run, by which it is found: with nothing in it that Slurm's commands would cut it at."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', title).strip('_') or 'job'}.{token}"


def job_name(label: str, run: int) -> str:
    """A job's name: `n04-g4-b32-3fa9c1d2e07b.r1`."""
    return f"{label}.r{run}"
