"""study.json, point.json and other records of a study as values, damaged ones named; how attempts ended, by their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hpcddp.core.attempt_records import AttemptEnd, DamagedFiles, GateResult, error_sentence, first_error
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point, point_from_dict
from hpcddp.core.run_root import Study
from hpcddp.core.schema import SchemaError, decode_record
from hpcddp.core.study_files import StudyRecord

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _PointFile:
    point: Mapping[str, object]
    """Decoded strictly: a key that is not known would be another point."""


def read_study_file(study: Study) -> StudyRecord:
    """study.json; one without points where nothing was submitted from here."""
    return read_record(StudyRecord, study.study_file) or StudyRecord()


def read_point(study: Study, label: str) -> Point | None:
    """From point.json, None where there is none."""
    file = read_record(_PointFile, study.point_file(label))
    return None if file is None else point_from_dict(file.point)


def read_record(cls: type[T], file: Path) -> T | None:
    """None where there is no such file, nor a folder for it; HpcddpError names a damaged one."""
    try:
        return decode_record(cls, json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, SchemaError) as error:
        raise HpcddpError(f"{file}: not a file hpcddp wrote: {error}") from error


@dataclass(frozen=True, kw_only=True)
class RecordedEnd(AttemptEnd):
    """end.json, of which nothing more is needed here: the figures of a run are for the analysis."""

    gates: tuple[GateResult, ...] = ()
    damaged: Mapping[str, DamagedFiles] = field(default_factory=dict)


def recorded_end(attempt: Path | None) -> RecordedEnd | None:
    """end.json, or what it would be by the earliest error that a rank recorded."""
    if attempt is None:
        return None
    end = read_end(attempt)
    if end and end.reason:
        return end
    error = first_error(attempt)
    return end if error is None else RecordedEnd(state="failed", reason=error_sentence(error), fault=error.fault)


def read_end(attempt: Path) -> RecordedEnd | None:
    """end.json; a damaged one (a full disk, a node that died) fails only its own run, which is then submitted again."""
    try:
        return read_record(RecordedEnd, attempt / "end.json")
    except HpcddpError as error:
        return RecordedEnd(state="failed", reason=str(error))
