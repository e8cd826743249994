"""study.json, checked: which runs were submitted, so that missing ones can be named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcddp.analysis.records.attempt_files import schema_sentence
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.util.regular_files import is_there, read_raw
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from hpcddp.core.schema import Count, MissingKeyError, Positive, SchemaError, decode_record
from hpcddp.core.text import escape_controls

MOST_RUNS = 1_000_000
HOLDS = ("batch_per_gpu", "global_batch")


@dataclass(frozen=True)
class StudyFile:
    """`repeats`: label -> runs that are expected, of the points that are still there; `train_epochs`: of a whole training;
    `in_sweep`: label -> runs that the sweep had at the last submission, where that is known.
    """

    name: str
    hold: str
    repeats: Mapping[str, int]
    train_epochs: int | None = None
    in_sweep: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    label: str
    repeat: Positive | None = None
    in_sweep: Count | None = None


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    hold: str = HOLDS[0]
    train_epochs: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class _Content:
    """What is read of study.json."""

    name: str | None = None
    repeat: Positive
    points: tuple[_Entry, ...]
    sweep: _Sweep = _Sweep()


def read_study_file(study: Study) -> StudyFile:
    """HpcddpError where it is damaged; jobs submitted by hand have none."""
    file, name = study.study_file, study.folder.resolve().name
    if not is_there(file):
        return StudyFile(name, HOLDS[0], {})
    try:
        return _checked(decode_record(_Content, read_raw(file)), name, study)
    except FileNotFoundError as error:
        raise HpcddpError(f"{file} is damaged: it links to nothing") from error
    except MissingKeyError as error:
        raise HpcddpError(f"{file} is damaged: it lacks '{error.key}'") from error
    except SchemaError as error:
        raise HpcddpError(f"{file} is damaged: {schema_sentence('study.json', error)}") from error
    except Rejected as error:
        raise HpcddpError(f"{file} is damaged: {error}") from error


def _checked(found: _Content, name: str, study: Study) -> StudyFile:
    repeats = {entry.label: entry.repeat or found.repeat for entry in found.points}
    for label in repeats:
        if label in ("", ".", "..") or "/" in label or not label.isprintable():
            raise Rejected(f"{label!r} is no label of a point")
    if sum(repeats.values()) > MOST_RUNS:
        raise Rejected(f"it asks for {sum(repeats.values()):,} runs")
    if found.sweep.hold not in HOLDS:
        raise Rejected(f"hold is {found.sweep.hold!r}")
    there = {label: repeat for label, repeat in repeats.items() if study.has_point(label)}
    in_sweep = {entry.label: entry.in_sweep for entry in found.points if entry.in_sweep is not None}
    return StudyFile(escape_controls(found.name or name), found.sweep.hold, there, found.sweep.train_epochs, in_sweep)
