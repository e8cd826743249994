"""How attempts ended, by their own records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.first_error import first_cause, first_error


def recorded_end(attempt: Path | None) -> dict[str, Any] | None:
    """end.json, or what it would be by the earliest error that a rank recorded."""
    if attempt is None:
        return None
    end = read_end(attempt)
    if end and end.get("reason"):
        return end
    error = first_error(attempt)
    return end if error is None else {"state": "failed", "reason": first_cause(attempt), "fault": error.get("fault")}


def read_end(attempt: Path) -> dict[str, Any] | None:
    """end.json; a damaged one (a full disk, a node that died) fails its run alone, which is then submitted again."""
    try:
        return read_object(attempt / "end.json")
    except HpcddpError as error:
        return {"state": "failed", "reason": str(error)}


def read_object(file: Path) -> dict[str, Any] | None:
    """None where there is no such file, nor a folder for it; HpcddpError names a damaged one."""
    try:
        plain: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise HpcddpError(f"{file}: not a file hpcddp wrote: {error}") from error
    return plain
