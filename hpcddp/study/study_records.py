"""study.json, point.json and other records of a study as values, damaged ones named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point, point_from_dict
from hpcddp.core.run_root import Study
from hpcddp.core.schema import SchemaError, decode_record
from hpcddp.core.study_record import StudyRecord

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
