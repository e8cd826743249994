"""How jobs ended that left no end.json, as their backend said: for analysis, which reads records and asks no backend.

A line of a study's outcomes.jsonl has `label`, `run`, `job`, `reason` and `unix_s`; the last one on a job holds. A `reason` of
null takes back what was said before: the job was requeued. Only the study's owner notes something, where that can be written.
Standard library only, Python 3.10.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from hpcddp.core.records import append_line
from hpcddp.core.run_root import Study


class JobRun(NamedTuple):
    """A run and the job that ran it: Slurm gives ids of jobs out again."""

    label: str
    run: int
    job: str


def note_outcomes(study: Study, found: Iterable[tuple[JobRun, str | None]]) -> None:
    """Appends what is new: the reason a job failed, or None for one that waits or runs."""
    with contextlib.suppress(OSError):
        if study.folder.stat().st_uid != os.geteuid():
            return
        known = read_outcomes(study.outcomes_file.read_bytes() if study.outcomes_file.is_file() else b"")
        new = [{**of._asdict(), "reason": reason, "unix_s": time.time()} for of, reason in found if known.get(of) != reason]
        if new:
            append_line(study.outcomes_file, *new, sync=False)


def read_outcomes(content: bytes) -> dict[JobRun, str]:
    """Why jobs failed; a line that is torn or damaged says nothing."""
    found: dict[JobRun, str | None] = {}
    for line in content.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            plain = json.loads(line)
            reason = plain["reason"]
            found[JobRun(str(plain["label"]), int(plain["run"]), str(plain["job"]))] = None if reason is None else str(reason)
    return {of: reason for of, reason in found.items() if reason is not None}
