"""What was submitted: lines of a study's submissions.jsonl.

Every line has `event`, `token` (one per submission), `label`, `run`, `backend` and `unix_s`. An `intent` is written before the
submission; after it `submitted` with `job`, or `refused` with `reason`. An intent that nothing follows was interrupted: the
next submission looks its job up and adds `submitted`, or `lost` where there is none. `hpcddp cancel` adds `cancelled`, with
the `job` and as `reason` the user. Runs that are tasks of one array have its name as `array`, their number as `task`, and the
same token; so have runs in one allocation, and its `nodes`. `gpus_per_node` is what Slurm was asked for, `after` the
jobs that had to end well first. A last line without
its end was never acted upon (a full disk, a machine that went down): it does not count, and the next submission removes it.
"""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hpcddp.backends.base import job_name
from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import append_line
from hpcddp.core.run_root import RunKey, Study
from hpcddp.core.schema import SchemaError, added_later, decode, encode

Event = Literal["intent", "submitted", "refused", "lost", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class SubmissionEvent:
    """One line."""

    event: Event
    token: str
    label: str
    run: int
    backend: str
    unix_s: float
    job: str | None = None
    reason: str | None = None
    array: str | None = None
    """The name of the array in which the run is a task."""
    task: int | None = None
    nodes: int | None = None
    """Of the one job in which the run is a step."""
    gpus_per_node: int | None = None
    """Of that job, or of the run's own; None on this machine and in earlier versions."""
    after: tuple[str, ...] = added_later(())
    """Jobs that had to end well before it started."""

    @property
    def key(self) -> RunKey:
        """Which run it is."""
        return RunKey(self.label, self.run)

    @property
    def name(self) -> str:
        """Of the job: the run's own, or the array's."""
        return self.array or job_name(self.label, self.run)

    def job_of(self, found: str) -> str:
        """The run's job, where `found` is the id that bears the name."""
        return found if self.task is None else f"{found}{'_' if self.nodes is None else '+'}{self.task}"


def follow(previous: SubmissionEvent, event: Event, *, job: str | None = None, reason: str | None = None) -> SubmissionEvent:
    """The next line on the same submission; `job` and `reason` stay as they were where they are not given."""
    return replace(previous, event=event, unix_s=time.time(), job=job or previous.job, reason=reason or previous.reason)


def append(study: Study, lines: Sequence[SubmissionEvent]) -> None:
    """Adds these lines, in one write. Only intents are synced to disk: the job of one that nothing follows is looked up."""
    if lines:
        has_intent = any(line.event == "intent" for line in lines)
        append_line(study.submissions_file, *(encode(line, keep_defaults=False) for line in lines), sync=has_intent)


def latest_events(study: Study) -> dict[RunKey, SubmissionEvent]:
    """The newest line on each run; HpcddpError names a line that is damaged."""
    found: dict[RunKey, SubmissionEvent] = {}
    for number, text in enumerate(_complete_lines(study).splitlines(), start=1):
        try:
            event = decode(SubmissionEvent, json.loads(text))
        except (ValueError, SchemaError) as error:
            raise HpcddpError(f"{study.submissions_file}:{number}: not a line hpcddp wrote: {error}") from error
        found[event.key] = event
    return found


def user_name() -> str:
    """The one who runs this."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def truncate_torn_tail(study: Study) -> None:
    """Cuts off a last line without its end, which the next would run into; the caller holds the study's lock."""
    size = len(_complete_lines(study))
    if size < (study.submissions_file.stat().st_size if study.submissions_file.is_file() else 0):
        os.truncate(study.submissions_file, size)


def _complete_lines(study: Study) -> bytes:
    """The file up to its last line break."""
    if not study.submissions_file.is_file():
        return b""
    content = study.submissions_file.read_bytes()
    return content[: content.rfind(b"\n") + 1]
