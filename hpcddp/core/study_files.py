"""A study's study.json, its points' point.json, and outcomes.jsonl: for analysis, how jobs ended that left no end.json.

A line of outcomes.jsonl has `label`, `run`, `job`, `reason` and `unix_s`; the last one on a job holds. A `reason` of null takes
back what was said before: the job was requeued. Only the study's owner notes something, where that can be written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hpcddp.core.point import Point, point_to_dict
from hpcddp.core.records import SCHEMA, append_line, write_aside, write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import Count, added_later

FEWEST = 6
"""Runs below which the 95 % interval of a median is not known: the range of five holds it with 93.75 %."""


@dataclass(frozen=True, kw_only=True)
class SweepChanges:
    """The options of a submission that make other points of a sweep; by default none."""

    set: tuple[str, ...] = ()
    """--set, each as KEY=VALUE."""
    cluster: str | None = None
    also: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """--input and --comm, by key of the sweep."""


@dataclass(frozen=True, kw_only=True)
class StudyPoint:
    """A point that was submitted."""

    label: str
    id: str | None = added_later(None)
    groups: tuple[str, ...] = ()
    repeat: Count | None = None
    """Its runs, by the last submission that had the point; None: those of the study."""
    options: tuple[SweepChanges, ...] = added_later(())
    """Those of each submission that had it. None of a benchmark of communication, which is in no sweep file."""
    until_ci: Count = added_later(0)
    """Its runs, with those that --until-ci added."""
    in_sweep: Count | None = added_later(None)
    """How many of its runs the sweep had at the last submission; 0 where the point was taken out; None: not known."""


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What was submitted, by the last submission; points of earlier ones stay, as their runs do."""

    schema: int = SCHEMA
    hpcddp: str | None = None
    """The version that wrote it."""
    name: str | None = None
    sweep: Mapping[str, object] = field(default_factory=dict)
    repeat: Count = 0
    points: tuple[StudyPoint, ...] = ()


def described(point: Point) -> dict[str, object]:
    """What the file holds."""
    return {"schema": SCHEMA, "id": point.id, "point": point_to_dict(point)}


def describe_point(study: Study, point: Point) -> None:
    """Writes the file where there is none: runs that no login side submitted bring it themselves."""
    file = study.point_file(point.label)
    if not file.exists():
        write_json(file, described(point))


class JobRun(NamedTuple):
    """A run and the job that ran it: Slurm gives ids of jobs out again."""

    label: str
    run: int
    job: str


def note_outcomes(study: Study, found: Iterable[tuple[JobRun, str | None]]) -> None:
    """Appends what is new: the reason a job failed, or None for one that waits or runs."""
    with contextlib.suppress(OSError):
        if study.folder.stat().st_uid != os.geteuid():
            return
        known = read_outcomes(study.outcomes_file.read_bytes() if study.outcomes_file.is_file() else b"")
        new = [{**of._asdict(), "reason": reason, "unix_s": time.time()} for of, reason in found if known.get(of) != reason]
        if new:
            append_line(study.outcomes_file, *new, sync=False)


def read_outcomes(content: bytes) -> dict[JobRun, str]:
    """Why jobs failed; a line that is torn or damaged says nothing."""
    found: dict[JobRun, str | None] = {}
    for line in content.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            plain = json.loads(line)
            reason = plain["reason"]
            found[JobRun(str(plain["label"]), int(plain["run"]), str(plain["job"]))] = None if reason is None else str(reason)
    return {of: reason for of, reason in found.items() if reason is not None}


def name_elsewhere(study: Study) -> str:
    """The study's folder on hosts and in S3: a name that no shell takes apart, and that no other study has, nor a later one of
    the same path. Made by the first submission, under the study's lock.
    """
    file = study.jobs / "elsewhere.id"
    if not file.is_file():
        write_aside(file, secrets.token_hex(8).encode())
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', study.name)}-{file.read_text(encoding='utf-8')}"
