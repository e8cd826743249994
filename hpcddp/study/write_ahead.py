"""What is about to be asked of a backend, written down before: whatever happens in between, its job can be found again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from hpcddp.backends.base import Batch
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from hpcddp.study.lock import HeldLock
from hpcddp.study.submission_log import SubmissionEvent, append, follow

AHEAD = 16
"""Submissions that are written down at once: until it is sure that they stay, a shared file system may take 20 ms."""


class Intents:
    """Those of a study's next submissions; in the end what was not taken is withdrawn."""

    def __init__(self, study: Study, backend: str, held: HeldLock) -> None:
        """`held`: the study's lock."""
        self._study, self._backend, self._held = study, backend, held
        self._told: dict[str, list[SubmissionEvent]] = {}
        """By token."""

    def __enter__(self) -> Intents:
        return self

    def __exit__(self, *_: object) -> None:
        """A process that has taken the lock over looks up itself what became of them."""
        with contextlib.suppress(HpcddpError):
            self._held.check()
            append(self._study, [follow(told, "lost") for each in self._told.values() for told in each])

    def take(self, batch: Batch, following: Iterable[Batch]) -> list[SubmissionEvent]:
        """Those of this batch, which is asked for now: on disk, as are those of some of the following."""
        self._held.check()
        if batch.token not in self._told:
            next_ones = islice(chain([batch], following), AHEAD)
            new = {each.token: _intents(each, self._backend) for each in next_ones if each.token not in self._told}
            append(self._study, [told for intents in new.values() for told in intents])
            self._told |= new
        return self._told.pop(batch.token)


def _intents(batch: Batch, backend: str) -> list[SubmissionEvent]:
    of_all: dict[str, Any] = {"event": "intent", "token": batch.token, "backend": backend, "unix_s": time.time()}
    specs = [request.spec for request in batch.requests]
    if not batch.is_array and batch.one_allocation is None:
        return [SubmissionEvent(**of_all, label=spec.label, run=spec.run) for spec in specs]
    if batch.one_allocation is not None:
        of_all |= {"nodes": batch.one_allocation.nodes, "gpus_per_node": batch.one_allocation.gpus_per_node}
    return [
        SubmissionEvent(**of_all, label=spec.label, run=spec.run, array=batch.name, task=task) for task, spec in enumerate(specs)
    ]
