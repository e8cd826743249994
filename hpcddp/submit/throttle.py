"""--max-running: at most N runs at a time. Each job depends on the end of an earlier one, so Slurm itself sees to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hpcddp.backends.base import Batch
from hpcddp.core.job_ids import base_id


class Throttle:
    """A slot for each run that may run at a time: jobs in one slot run one after the other. An array takes a slot for each of its
    tasks that may run at a time.
    """

    def __init__(self, slots: int | None, live: Iterable[str]) -> None:
        """`slots` None: no limit. `live`: jobs that wait or run already, each task of an array too. Any of them may run
        now: each slot starts with at most one of them, and where they are more than the slots, every slot waits for the rest too.
        """
        ids = [base_id(job) for job in sorted(live, key=lambda job: [int(number) for number in re.findall(r"\d+", job)])]
        more, free = max(0, len(ids) - (slots or 0)), max(0, (slots or 0) - len(ids))
        self._ends = [*([] for _ in range(free)), *([*ids[:more], job] for job in ids[more:])] if slots else []

    def place(self, batch: Batch) -> Batch:
        """The batch, to start after the jobs of the slots that were filled longest ago."""
        if not self._ends:
            return batch
        taken = self._ends[: _width(batch)]
        return replace(batch, at_once=len(taken), after=tuple(dict.fromkeys(job for end in taken for job in end)))

    def took(self, batch: Batch, jobs: list[str]) -> None:
        """Notes that the batch was submitted as these jobs: they are now the last in its slots."""
        taken, rest = self._ends[: _width(batch)], self._ends[_width(batch) :]
        self._ends = [*rest, *([base_id(jobs[0])] for _ in taken)]


def _width(batch: Batch) -> int:
    """How many of its runs may run at a time."""
    return 1 if batch.one_allocation else len(batch.submissions)
