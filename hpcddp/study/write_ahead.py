"""Intents: each submission is logged before the backend is called, so that its job can be found whatever happens in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, islice

from hpcddp.backends.base import Batch
from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import HeldLock
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import SubmissionEvent, append, follow

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
