"""Why an attempt failed, by what its ranks recorded: the earliest error. Standard library only, Python 3.10."""

from __future__ import annotations

import json
from pathlib import Path

from hpcddp.core.attempt_records import ErrorRecord
from hpcddp.core.errors import HpcddpError
from hpcddp.core.schema import decode_record


def error_sentence(error: ErrorRecord) -> str:
    """With rank and host."""
    if error.fault is not None:
        return error.fault.sentence
    kind = "" if error.type == HpcddpError.__name__ else f"{error.type}: "  # as 0.1.0 wrote it at first
    return f"rank {error.rank} on {error.host}: {kind}{error.message}"


def first_error(attempt: Path) -> ErrorRecord | None:
    """The earliest, but for those of ranks that only miss another one, which come after all others."""
    files = (attempt / "ranks").glob("*.error.json")
    errors = (decode_record(ErrorRecord, json.loads(file.read_text(encoding="utf-8"))) for file in files)
    return min(errors, key=_order, default=None)


def _order(error: ErrorRecord) -> tuple[bool, int]:
    return error.fault is not None and error.fault.kind in ("contact", "time_out"), error.unix_ns
