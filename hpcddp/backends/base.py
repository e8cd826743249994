"""How work reaches a cluster: what every backend takes and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from hpcddp.entry import WORKER
from hpcddp.jobspec import JobSpec
from hpcddp.runroot import Study
from hpcddp.script import Launch

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
    """Unlike any other submission's: by it a job is found again whose id never arrived."""
    render_text: Callable[[Launch], str] | None = None
    """The job's script around its launch; None where the backend needs no script."""
    account: str | None = None
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
class JobState:
    """What became of a job, as its backend sees it."""

    phase: Phase
    detail: str | None = None
    """Why it waits, or how it ended, in words."""
    nodes: str | None = None
    """Where it runs or ran, as the backend writes a list of nodes."""


class Backend(Protocol):
    """A job id is the backend's own; wherever one is passed in, the job's name comes with it, since ids are given out again."""

    @property
    def name(self) -> str: ...

    def check(self, request: Submission) -> None:
        """Raises UsageError for what is sure to be refused, before anything is written."""

    def submit(self, request: Submission) -> str:
        """The id of the new job. RefusedError where the backend says no; HpcddpError where it is not known what became of it."""

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        """A state for every job id of `jobs` (id -> name)."""

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Ends those of the jobs that wait or run."""

    def find(self, name: str, token: str) -> str | None:
        """The id of the job of that submission, None if there is none; HpcddpError where that cannot be told."""

    def fetch(self, study: Study) -> None:
        """Brings the records of the study's jobs to this machine, where they are not on a shared file system."""


def pause_s(waited_s: float) -> float:
    """Between two looks at a queue: 2 s at first, half a minute from ten minutes on, since all share its controller."""
    return min(max(2.0, waited_s / 20), 30.0)


def job_name(label: str, run: int) -> str:
    """A job's name: `n04-g4-b32-3fa9c1d2e07b.r1`."""
    return f"{label}.r{run}"
