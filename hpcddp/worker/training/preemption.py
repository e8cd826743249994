"""When ranks write a checkpoint, and when they stop: all of them after the same step, with none interrupted in its middle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

from hpcddp.core.stop_signal import stop_requested
from hpcddp.worker.rendezvous import ProcessGroup

POLL_EVERY_S = 1.0
"""A poll costs a question to rank 0's store, some 0.1 ms."""

MOST_STEPS = 200
"""Between two polls: steps may become slower than they were."""


Action = Literal["continue", "checkpoint", "stop"]
"""What all ranks do after a step; `stop` is a checkpoint and the end of the attempt."""


class ActionPoll:
    """All ranks ask after the same steps what to do, and rank 0 answers, so that all do the same. Rank 0 also says after which
    step to ask again: about once a second, whatever a step lasts."""

    def __init__(self, group: ProcessGroup, first_step: int, checkpoint_every_min: float) -> None:
        self._group = group
        self._checkpoint_every_s = 60 * checkpoint_every_min
        self._next_step = first_step
        self._last_poll = (first_step, time.monotonic())
        self._checkpoint_at_s = time.monotonic()

    def due(self, steps: int) -> bool:
        """Whether all ranks ask after `steps` steps."""
        return steps >= self._next_step

    def action(self, steps: int) -> Action:
        """All ranks call it where one is due; the others wait for rank 0 to come there too."""
        decided = self._decide(steps) if self._group.rank.rank == 0 else None
        action: Action
        action, self._next_step = self._group.share(f"action after {steps}", decided)
        return action

    def _decide(self, steps: int) -> tuple[Action, int]:
        (before, before_s), now_s = self._last_poll, time.monotonic()
        self._last_poll = (steps, now_s)
        step_s = (now_s - before_s) / (steps - before)
        next_step = steps + min(MOST_STEPS, max(1, int(POLL_EVERY_S / step_s)))
        if stop_requested():
            return "stop", steps
        if self._checkpoint_every_s and now_s >= self._checkpoint_at_s + self._checkpoint_every_s:
            self._checkpoint_at_s = now_s
            return "checkpoint", next_step
        return "continue", next_step


class PolledSteps:
    """Steps that end early where an action is due; after the last of them nobody asks."""

    def __init__(self, steps: range, poll: Callable[[int], Action]) -> None:
        self.start, self.stop = steps.start, steps.stop
        self.action: Action = "continue"
        self._poll = poll

    def __iter__(self) -> Iterator[int]:
        for step in range(self.start, self.stop):
            yield step
            if step + 1 < self.stop:
                self.action = self._poll(step + 1)
                if self.action != "continue":
                    self.stop = step + 1
                    return
