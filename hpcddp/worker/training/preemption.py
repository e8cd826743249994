"""When ranks write a checkpoint, and when they stop: all of them after the same step, with none interrupted in its middle."""

from __future__ import annotations

import time
from typing import Literal

from hpcddp.core.stop_signal import stop_requested
from hpcddp.worker.rendezvous import ProcessGroup

LOOK_EVERY_S = 1.0
"""A look costs a question to rank 0's store, some 0.1 ms."""

FARTHEST = 200
"""Steps between two looks at most: steps may become slower than they were."""

Verdict = Literal["on", "keep", "stop"]
"""What comes after a step: the next one; a checkpoint and then the next one; a checkpoint and the end of the attempt."""


class Looks:
    """Whether a checkpoint is due, asked by all ranks after the same steps and answered by rank 0, so that all do the same.

    Rank 0 also says after which step to look again: about once a second, whatever a step lasts.
    """

    def __init__(self, group: ProcessGroup, first_step: int, keep_every_min: float) -> None:
        self._group = group
        self._keep_every_s = 60 * keep_every_min
        self._next = first_step
        self._looked = (first_step, time.monotonic())
        self._kept_s = time.monotonic()

    def due(self, made: int) -> bool:
        """Whether all ranks look after `made` steps."""
        return made >= self._next

    def verdict(self, made: int) -> Verdict:
        """All ranks call it where one is due; the others wait for rank 0 to come there too."""
        decided = self._decide(made) if self._group.rank.rank == 0 else None
        found, self._next = self._group.share(f"look after {made}", decided)
        verdict: Verdict = found
        return verdict

    def _decide(self, made: int) -> tuple[Verdict, int]:
        (before, before_s), now_s = self._looked, time.monotonic()
        self._looked = (made, now_s)
        step_s = (now_s - before_s) / (made - before)
        farther = min(FARTHEST, max(1, int(LOOK_EVERY_S / step_s)))
        if stop_requested():
            return "stop", made
        if self._keep_every_s and now_s >= self._kept_s + self._keep_every_s:
            self._kept_s = now_s
            return "keep", made + farther
        return "on", made + farther
