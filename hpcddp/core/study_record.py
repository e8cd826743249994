"""study.json as a frozen dataclass: what was submitted of a study. Written by `hpcddp submit`, read by all commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, added_later


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
