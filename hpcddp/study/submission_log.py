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

import contextlib
import json
import os
import pwd
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

from hpcddp.backends.base import Backend, Batch, job_name
from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import HeldLock
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


AHEAD = 16
"""Submissions that are logged in one write, since a shared file system may take 20 ms until it is on disk."""


class Intents:
    """The intents of a study's next submissions; those that were not taken are logged as lost at the end."""

    def __init__(self, study: Study, backend: str, held: HeldLock) -> None:
        """`held`: the study's lock."""
        self._study, self._backend, self._held = study, backend, held
        self._logged: dict[str, list[SubmissionEvent]] = {}
        """Not taken yet, by token."""

    def __enter__(self) -> Intents:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(HpcddpError):  # a process that has taken the lock over looks up itself what became of them
            self._held.check()
            append(self._study, [follow(intent, "lost") for intents in self._logged.values() for intent in intents])

    def take(self, batch: Batch, following: Iterable[Batch]) -> list[SubmissionEvent]:
        """Those of this batch, which is submitted now. They are on disk, as are those of some of the following."""
        self._held.check()
        if batch.token not in self._logged:
            batches = islice(chain([batch], following), AHEAD)
            new = {each.token: _intents(each, self._backend) for each in batches if each.token not in self._logged}
            append(self._study, [intent for intents in new.values() for intent in intents])
            self._logged |= new
        return self._logged.pop(batch.token)


def _intents(batch: Batch, backend: str) -> list[SubmissionEvent]:
    single = not batch.is_array and batch.one_allocation is None
    intents = [
        SubmissionEvent(
            event="intent",
            token=batch.token,
            label=submission.spec.label,
            run=submission.spec.run,
            backend=backend,
            unix_s=time.time(),
            array=None if single else batch.name,
            task=None if single else task,
            gpus_per_node=submission.gpus_per_node,
            after=batch.after_ok,
        )
        for task, submission in enumerate(batch.submissions)
    ]
    if batch.one_allocation is None:
        return intents
    shared = batch.one_allocation
    return [replace(intent, nodes=shared.nodes, gpus_per_node=shared.gpus_per_node) for intent in intents]


def reconcile(study: Study, backend: Backend) -> list[SubmissionEvent]:
    """Logs each as submitted or lost, by what the backend finds of it; the lines of those that have a job.

    The caller holds the study's lock.
    """
    truncate_torn_tail(study)
    intents = [event for event in latest_events(study).values() if event.event == "intent" and event.backend == backend.name]
    found = {names: backend.find(study, *names) for names in dict.fromkeys((intent.name, intent.token) for intent in intents)}
    jobs = [(intent, found[intent.name, intent.token]) for intent in intents]
    lines = [follow(intent, "submitted", job=intent.job_of(job)) if job else follow(intent, "lost") for intent, job in jobs]
    append(study, lines)
    return [line for line in lines if line.job is not None]
