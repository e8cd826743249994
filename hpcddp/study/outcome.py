"""How attempts ended, by their own records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hpcddp.core.attempt_records import AttemptEnd, GateResult
from hpcddp.core.errors import HpcddpError
from hpcddp.core.first_error import error_sentence, first_error
from hpcddp.core.schema import SchemaError, decode_record

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RecordedEnd(AttemptEnd):
    """end.json, of which nothing more is needed here: the figures of a run are for the analysis."""

    gates: tuple[GateResult, ...] = ()


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


def read_record(cls: type[T], file: Path) -> T | None:
    """None where there is no such file, nor a folder for it; HpcddpError names a damaged one."""
    plain = read_object(file)
    try:
        return None if plain is None else decode_record(cls, plain)
    except SchemaError as error:
        raise HpcddpError(f"{file}: not a file hpcddp wrote: {error}") from error


def read_object(file: Path) -> dict[str, Any] | None:
    """The same of a JSON object as it is."""
    try:
        plain: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise HpcddpError(f"{file}: not a file hpcddp wrote: {error}") from error
    return plain
