"""What became of the jobs that prepare, pack or check data sets: their records first, then what the backend says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hpcddp.backends.base import JobState
from hpcddp.core.data_job import END_FILE, JOB_FILE, PROGRESS_FILE, DataEnd, DataJob, DataProgress
from hpcddp.core.run_root import Study, single_study
from hpcddp.core.schema import encode
from hpcddp.core.text import duration, thousands
from hpcddp.study.status_text import WIDTH, wrapped
from hpcddp.study.study_records import read_record

DATA_FOLDER = "data"
"""Of the run root: the jobs of `hpcddp data`, which are of no study."""

Phase = Literal["queued", "running", "done", "failed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class DataJobState:
    """The newest job of a task."""

    record: DataJob
    phase: Phase
    detail: str | None = None
    """What it did, why it waits, failed or is not known, in words."""
    progress: DataProgress | None = None
    """While it runs; of one that was killed or cancelled how far it came, without a rate."""

    @property
    def plain(self) -> dict[str, object]:
        """For JSON."""
        task = self.record.task
        found = {"task": task.title, "command": task.command, "job": self.record.job, "phase": self.phase, "detail": self.detail}
        return {**found, **(encode(self.progress) if self.progress else {})}

    @property
    def is_live(self) -> bool:
        """Whether it waits or runs; a controller that does not answer just now has not ended it."""
        return self.phase in ("queued", "running", "unknown")


def folders_of_data_jobs(root: Path) -> list[Study]:
    """The folders at `root`, itself or those below it, that have such jobs; they need have no runs."""
    below = [] if (root / "study.json").is_file() else sorted(folder for folder in root.iterdir() if folder.is_dir())
    return [study for study in map(Study, [root, *below]) if any(study.jobs.glob(f"*.data/{JOB_FILE}"))]


def study_with_jobs(root: Path) -> Study:
    """The one study at `root`, or the folder there that has such jobs and no runs; UsageError where there is neither."""
    folders = folders_of_data_jobs(root) if root.is_dir() else []
    return Study(root) if Study(root) in folders else single_study(root)


def cancel_data_jobs(study: Study, states: Sequence[DataJobState]) -> None:
    """Ends those that wait or run."""
    from hpcddp.backends.choose import make_backend

    for name in dict.fromkeys(state.record.backend for state in states):
        mine = [state.record for state in states if state.record.backend == name]
        make_backend(name, study).cancel({record.job: record.name for record in mine})


def data_jobs(study: Study) -> list[DataJob]:
    """The newest of each task, in the order of submission."""
    found = [job for file in study.jobs.glob(f"*.data/{JOB_FILE}") if (job := read_record(DataJob, file)) is not None]
    newest: dict[str, DataJob] = {}
    for job in sorted(found, key=lambda job: job.submitted_at):
        newest.pop(job.task.command, None)
        newest[job.task.command] = job
    return list(newest.values())


def data_job_states(study: Study) -> list[DataJobState]:
    """Of data_jobs; a backend is queried for those without an end of their own."""
    from hpcddp.backends.choose import make_backend

    jobs = data_jobs(study)
    ends = {job.job: end for job in jobs if (end := _end(study, job)) is not None}
    polled: dict[str, JobState] = {}
    for name in dict.fromkeys(job.backend for job in jobs):
        without_end = {job.job: job.name for job in jobs if job.backend == name and job.job not in ends}
        polled |= make_backend(name, study).poll(without_end) if without_end else {}
    return [_state(study, job, ends.get(job.job) or _end(study, job), polled.get(job.job)) for job in jobs]


def _end(study: Study, job: DataJob) -> DataEnd | None:
    return read_record(DataEnd, study.data_dir(job.job) / END_FILE)


def _state(study: Study, job: DataJob, end: DataEnd | None, polled: JobState | None) -> DataJobState:
    if end is not None:
        return DataJobState(record=job, phase="done" if end.ok else "failed", detail=end.text)
    state = polled or JobState(phase="unknown")
    if state.phase == "done":  # it ended well, and its end.json has not come to this machine yet
        return DataJobState(record=job, phase="done")
    progress = read_record(DataProgress, study.data_dir(job.job) / PROGRESS_FILE) if state.phase != "queued" else None
    if state.phase == "failed" and progress is not None:
        progress = replace(progress, per_s=None)  # how far it came; it goes no further
    detail = state.detail
    if state.phase == "failed" and state.word != "CANCELLED":  # it did not live to say why
        detail = f"{detail or 'it wrote no result'}; see {study.job_dir(job.job)}"
    return DataJobState(record=job, phase=state.phase, detail=detail, progress=progress)


def data_job_lines(states: Sequence[DataJobState]) -> Iterator[str]:
    """A line for each job, and below it what it did or lacks."""
    for state in states:
        task = state.record.task
        head, text = f"{task.action} {task.data}  job {state.record.job}  {state.phase}", _words(state)
        if text and len(head) + 2 + len(text) <= WIDTH:
            yield f"{head}  {text}"
        else:
            yield from (head, *wrapped(text, "    "))


def live_words(states: Sequence[DataJobState]) -> list[str]:
    """`prepare-bigmnist 12,000 of 72,000 (17 %), 1,400/s, 43 s left` of each that runs."""
    running = (state for state in states if state.phase == "running")
    return [f"{state.record.task.title} {_progress_words(state.progress)}".rstrip() for state in running]


def _words(state: DataJobState) -> str:
    """How far it is and where, or what became of it."""
    words = "; ".join(filter(None, (_progress_words(state.progress), state.detail)))
    return ", ".join(filter(None, (words, f"in {state.record.task.options['root']}"))) if state.is_live else words


def _progress_words(progress: DataProgress | None) -> str:
    """`12,000 of 72,000 (17 %), 1,400/s, 43 s left`"""
    if progress is None:
        return ""
    share = f" of {thousands(progress.total)} ({100 * progress.done / progress.total:.0f} %)" if progress.total else ""
    pace = f", {thousands(float(f'{progress.per_s:.2g}'))}/s" if progress.per_s else ""
    left = f", {duration(progress.left_s)} left" if progress.left_s is not None else ""
    return f"{thousands(progress.done)}{share}{pace}{left}"
