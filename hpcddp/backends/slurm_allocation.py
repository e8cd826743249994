"""The runs of one allocation, one after the other: Slurm knows the job, the job's folder says which run is at work.

.jobs/NAME/steps.jsonl    by the job's script (templates/one_allocation.sh.j2), a line an event: `begun` when the job starts,
                          again after a requeue; `started` and `ended` of a task, the latter with the step's exit code,
                          and Slurm's word and the limit in minutes where its time was over
.jobs/NAME/7/cancelled    by `hpcddp cancel`: the script passes this task over
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_words import slurm_ended_words
from hpcddp.core.schema import SchemaError, decode_record

STEPS = "steps.jsonl"

CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """A line of steps.jsonl."""

    event: str
    task: int | None
    """None of the job itself."""
    code: int | None = None
    word: str | None = None
    limit_min: int | None = None


def read_step_events(folder: Path) -> list[StepEvent]:
    """What the script wrote so far in the job's folder; lines that are torn or damaged are passed over."""
    try:
        lines = (folder / STEPS).read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (_event(line) for line in lines)
    return [event for event in found if event is not None]


def task_state(folder: Path, job: JobState) -> JobState:
    """The state of the task whose folder this is, by that of its job."""
    events, task = read_step_events(folder.parent), int(folder.name)
    ended = _ended(events).get(task)
    if ended is not None:
        return _ended_state(ended, (folder / CANCELLED).exists(), job)
    if job.phase == "running" and running_task(events) == task:
        return job
    if (folder / CANCELLED).exists():
        return JobState(phase="failed", detail="cancelled before it started", nodes=job.nodes)
    return replace(job, phase="queued", detail="waits for earlier runs of its job", nodes=None) if job.phase == "running" else job


def was_started(folder: Path) -> bool:
    """Whether the task whose folder this is was ever started."""
    return any(event.task == int(folder.name) for event in read_step_events(folder.parent))


def running_task(events: Sequence[StepEvent]) -> int | None:
    """The task that was started last, where nothing happened since."""
    return events[-1].task if events and events[-1].event == "started" else None


def cancel_tasks(folder: Path, tasks: Collection[int]) -> bool:
    """Notes in the job's folder that these tasks are not to be started; True where no other task is left to run."""
    for task in tasks:
        (folder / str(task) / CANCELLED).touch()
    ended = _ended(read_step_events(folder))
    left = (path for path in folder.iterdir() if path.name.isdecimal() and int(path.name) not in ended)
    return all((path / CANCELLED).exists() for path in left)


def _ended(events: Sequence[StepEvent]) -> dict[int | None, StepEvent]:
    return {event.task: event for event in events if event.event == "ended"}


def _ended_state(ended: StepEvent, is_cancelled: bool, job: JobState) -> JobState:
    """As accounting would have it of a job of its own."""
    if ended.code == 0:
        return JobState(phase="done", nodes=job.nodes)
    word = "CANCELLED" if is_cancelled else ended.word or "FAILED"
    limit = None if ended.limit_min is None else f"{ended.limit_min}:00"
    detail = slurm_ended_words(word, f"{ended.code}:0")
    return JobState(phase="failed", detail=detail, nodes=job.nodes, word=word, time_limit=limit)


def _event(line: str) -> StepEvent | None:
    try:
        return decode_record(StepEvent, json.loads(line))
    except (ValueError, SchemaError):
        return None
