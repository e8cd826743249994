"""What is about to be asked of a backend, written down before: whatever happens in between, its job can be found again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from hpcddp.backends.base import Batch
from hpcddp.errors import HpcddpError
from hpcddp.lock import Held
from hpcddp.runroot import Study
from hpcddp.submissions import Told, follow, tell_all

AHEAD = 16
"""Submissions that are written down at once: until it is sure that they stay, a shared file system may take 20 ms."""


class Intents:
    """Those of a study's next submissions, by name and token."""

    def __init__(self, study: Study, backend: str, held: Held) -> None:
        """`held`: the study's lock."""
        self._study, self._backend, self._held = study, backend, held
        self._told: dict[tuple[str, str], list[Told]] = {}

    def take(self, batch: Batch, following: Iterable[Batch]) -> list[Told]:
        """Those of this batch, which is asked for now: on disk, as are those of some of the following."""
        self._held.check()
        if (batch.name, batch.token) not in self._told:
            new = [each for each in islice(chain([batch], following), AHEAD) if (each.name, each.token) not in self._told]
            self._told |= {(each.name, each.token): _intents(each, self._backend) for each in new}
            tell_all(self._study, [told for each in new for told in self._told[each.name, each.token]])
        return self._told.pop((batch.name, batch.token))

    def withdraw(self) -> None:
        """Those that were not taken come to nothing; a process that has taken the lock over finds that out itself."""
        with contextlib.suppress(HpcddpError):
            self._held.check()
            tell_all(self._study, [follow(told, "lost") for each in self._told.values() for told in each])


def _intents(batch: Batch, backend: str) -> list[Told]:
    of_all: dict[str, Any] = {"event": "intent", "token": batch.token, "backend": backend, "unix_s": time.time()}
    specs = [request.spec for request in batch.requests]
    if not batch.is_array and batch.together is None:
        return [Told(**of_all, label=spec.label, run=spec.run) for spec in specs]
    if batch.together is not None:
        of_all |= {"nodes": batch.together.nodes, "gpus_per_node": batch.together.gpus_per_node}
    return [Told(**of_all, label=spec.label, run=spec.run, array=batch.name, task=task) for task, spec in enumerate(specs)]
