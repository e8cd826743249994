"""What was submitted: lines of a study's submissions.jsonl.

Every line has `event`, `token` (one per submission), `label`, `run`, `backend` and `unix_s`. An `intent` is written before the
backend is asked; then `submitted` with `job`, or `refused` with `reason`. An intent that nothing follows was interrupted: it is
looked up at the next submission, which adds `submitted`, or `lost`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Literal

from hpcddp.errors import HpcddpError
from hpcddp.records import append_line
from hpcddp.runroot import Study
from hpcddp.schema import SchemaError, decode, encode

Event = Literal["intent", "submitted", "refused", "lost"]


@dataclass(frozen=True, kw_only=True)
class Told:
    """One line."""

    event: Event
    token: str
    label: str
    run: int
    backend: str
    unix_s: float
    job: str | None = None
    reason: str | None = None


def tell(study: Study, event: Event, told: Told, **facts: Any) -> Told:
    """Adds a line on the submission that `told` is about; the line."""
    line = Told(event=event, token=told.token, label=told.label, run=told.run, backend=told.backend, unix_s=time.time(), **facts)
    append_line(study.submissions_file, encode(line, keep_defaults=False))
    return line


def last_told(study: Study) -> dict[tuple[str, int], Told]:
    """The newest line on each run, by label and number; HpcddpError names a line that is damaged."""
    if not study.submissions_file.is_file():
        return {}
    found: dict[tuple[str, int], Told] = {}
    for number, text in enumerate(study.submissions_file.read_bytes().splitlines(), start=1):
        try:
            told = decode(Told, json.loads(text))
        except (ValueError, SchemaError) as error:
            raise HpcddpError(f"{study.submissions_file}:{number}: not a line hpcddp wrote: {error}") from error
        found[told.label, told.run] = told
    return found
