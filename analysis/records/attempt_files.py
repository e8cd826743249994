"""launch.json, end.json and comm.json of an attempt, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcddp.analysis.records.impossible import check_comm
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.records.schema import Comm, Launch, check_shape
from hpcddp.analysis.util.regular_files import is_there, read_object
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.core.records import SCHEMA


def read_launch(attempt: Path, point: Point | None) -> dict[str, Any]:
    """launch.json; Rejected where it is damaged, newer than this reader or of another point than the folder's."""
    label = attempt.parent.parent.name
    if point is None or point.label != label:
        raise Rejected(f"point.json of {label} is missing or of another point")
    launch = _read(attempt / "launch.json")
    check_shape(launch, Launch, "launch.json")
    if launch["schema"] != SCHEMA:
        raise Rejected(f"records of schema {launch['schema']}; this hpcddp reads {SCHEMA}")
    if launch["point"] != point.id:
        raise Rejected(f"launch.json is of another point, {launch['point']}")
    if launch["ranks"] != point.ranks:
        raise Rejected(f"launch.json tells of {launch['ranks']} ranks, the point has {point.ranks}")
    return launch


def read_end(attempt: Path, warnings: list[str]) -> dict[str, Any] | None:
    """end.json; None where there is none or (with a warning) it cannot be read."""
    file = attempt / "end.json"
    if not is_there(file):
        return None
    try:
        return read_object(file)
    except (HpcddpError, FileNotFoundError):
        warnings.append(f"{'/'.join(file.parts[-4:])} is damaged; the attempt counts as not ended")
        return None


def read_comm(attempt: Path) -> dict[str, Any]:
    """comm.json; Rejected where it is damaged or newer than this reader."""
    found = _read(attempt / "comm.json")
    check_shape(found, Comm, "comm.json")
    if found["schema"] != SCHEMA:
        raise Rejected(f"comm.json of schema {found['schema']}; this hpcddp reads {SCHEMA}")
    check_comm(found)
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_object(file)
    except (HpcddpError, FileNotFoundError) as error:
        raise Rejected(f"{file.name} is damaged or missing") from error
