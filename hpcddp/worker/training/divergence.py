"""A loss that is infinite or not a number ends the run, in the name of the rank and the step where it came first.

A rank notices its own when it writes the row of that step: within AT_ONCE steps, or half a second. It cannot stop then: the
all-reduce has spread it to the others, and any of them may write its rows first. So it reports it in the store and makes more
steps, until every rank has noticed.
"""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta

from hpcddp.worker.faults import DivergedError
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steplog import AT_ONCE, StepLog

MORE_STEPS = 2 * AT_ONCE
"""Made for the others to notice theirs, at most: each writes its rows every AT_ONCE steps, or half a second."""

OTHERS_S = 5.0
"""Waited in a pause, where no more steps follow, for the others to come there."""


class Divergence:
    """Of one rank's losses; all ranks have one."""

    def __init__(self, group: ProcessGroup, log: StepLog) -> None:
        self._group, self._log = group, log
        self._keys = [f"hpcddp/diverged/{peer}" for peer in range(group.rank.world)]
        self._steps_since: int | None = None

    def check(self, *, pause: bool = False) -> None:
        """After a step, and in a pause of all ranks; DivergedError once all have noticed, or there was time enough for it."""
        if self._log.not_finite is None:
            return
        if self._steps_since is None:
            self._report(*self._log.not_finite)
            self._steps_since = 0
        self._steps_since += 1
        if pause:
            self._wait_for_others()
        if pause or self._steps_since > MORE_STEPS or self._group.store.check(self._keys):
            raise self._error()

    def _report(self, step: int, loss: float) -> None:
        rank = self._group.rank
        self._group.store.set(self._keys[rank.rank], json.dumps([step, rank.rank, rank.host, str(loss)]))

    def _wait_for_others(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._group.store.wait(self._keys, timedelta(seconds=OTHERS_S))

    def _error(self) -> DivergedError:
        store = self._group.store
        reports = sorted(json.loads(store.get(key)) for key in self._keys if store.check([key]))
        step, rank, host, loss = reports[0]
        others = f", and that of {len(reports) - 1} other rank(s) from there on" if len(reports) > 1 else ""
        return DivergedError(
            rank,
            host,
            f"the loss of step {step} is {loss}{others}: training diverged; lower workload.optimizer.lr, or look at what that "
            f"step trained on",
        )
