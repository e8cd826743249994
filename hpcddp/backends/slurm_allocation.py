"""Whose turn it is among the runs of one job: Slurm knows the job, its folder says the rest.

.jobs/NAME/steps.jsonl    by the job's script (templates/one_allocation.sh.j2), a line an event: `begun` when the job starts,
                          again after a requeue; `started` and `ended` of a task, the latter with the step's exit code,
                          and Slurm's word and the limit in minutes where its time was over
.jobs/NAME/7/cancelled    by `hpcddp cancel`: the script passes this task over
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_words import ended_words

STEPS = "steps.jsonl"

CANCELLED = "cancelled"

Event = dict[str, Any]


def events(folder: Path) -> list[Event]:
    """What the script told so far in the job's folder; lines that are torn or damaged are passed over."""
    try:
        lines = (folder / STEPS).read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (_event(line) for line in lines)
    return [event for event in found if event is not None]


def turn(folder: Path, job: JobState) -> JobState:
    """The state of the task whose folder this is, by that of its job."""
    told, task = events(folder.parent), int(folder.name)
    ended = _ended(told).get(task)
    if ended is not None:
        return _as_it_ended(ended, (folder / CANCELLED).exists(), job)
    if job.phase == "running" and at_work(told) == task:
        return job
    if (folder / CANCELLED).exists():
        return JobState(phase="failed", detail="cancelled before its turn", nodes=job.nodes)
    return replace(job, phase="queued", detail="waits for its turn in its job", nodes=None) if job.phase == "running" else job


def had_its_turn(folder: Path) -> bool:
    """Whether the task whose folder this is was ever started."""
    return any(event["task"] == int(folder.name) for event in events(folder.parent))


def at_work(told: list[Event]) -> int | None:
    """The task that was started last, where nothing happened since."""
    return told[-1]["task"] if told and told[-1]["event"] == "started" else None


def give_up(folder: Path, tasks: Collection[int]) -> bool:
    """Leaves word in the job's folder that these tasks are not to be started; whether none is left that is not over."""
    for task in tasks:
        (folder / str(task) / CANCELLED).touch()
    over = _ended(events(folder))
    left = (path for path in folder.iterdir() if path.name.isdecimal() and int(path.name) not in over)
    return all((path / CANCELLED).exists() for path in left)


def _ended(told: list[Event]) -> dict[int, Event]:
    return {event["task"]: event for event in told if event["event"] == "ended"}


def _as_it_ended(ended: Event, is_cancelled: bool, job: JobState) -> JobState:
    """As accounting would have it of a job of its own."""
    code, limit_min = ended.get("code"), ended.get("limit_min")
    if code == 0:
        return JobState(phase="done", nodes=job.nodes)
    word = "CANCELLED" if is_cancelled else str(ended.get("word", "FAILED"))
    limit = None if limit_min is None else f"{limit_min}:00"
    return JobState(phase="failed", detail=ended_words(word, f"{code}:0"), nodes=job.nodes, word=word, time_limit=limit)


def _event(line: str) -> Event | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"event", "task"} <= found.keys() else None
