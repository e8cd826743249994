"""How attempts ended, by their own records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcddp.core.attempt_records import AttemptEnd, GateResult
from hpcddp.core.damaged_record import DamagedFiles
from hpcddp.core.errors import HpcddpError
from hpcddp.core.first_error import error_sentence, first_error
from hpcddp.study.study_records import read_record


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
