"""So many runs at a time on a cluster that would start more: each job waits for the end of an earlier one; Slurm sees to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hpcddp.backends.base import Batch
from hpcddp.core.job_ids import base_id


class Throttle:
    """As many queues as runs may run at a time; what is in one runs in turn. An array takes several and may run as many tasks."""

    def __init__(self, lanes: int | None, live: Iterable[str]) -> None:
        """`lanes` None: no limit. `live`: jobs that wait or run already, each task of an array too. All of them may run at once:
        a lane begins with one at most, and with all those that are more than there are lanes.
        """
        ids = [base_id(job) for job in sorted(live, key=lambda job: [int(number) for number in re.findall(r"\d+", job)])]
        more, free = max(0, len(ids) - (lanes or 0)), max(0, (lanes or 0) - len(ids))
        self._ends = [*([] for _ in range(free)), *([*ids[:more], job] for job in ids[more:])] if lanes else []

    def place(self, batch: Batch) -> Batch:
        """The batch, behind those whose end has come to be waited for longest."""
        if not self._ends:
            return batch
        taken = self._ends[: _width(batch)]
        return replace(batch, at_once=len(taken), after=tuple(dict.fromkeys(job for end in taken for job in end)))

    def took(self, batch: Batch, jobs: list[str]) -> None:
        """The batch was submitted as these jobs."""
        taken, rest = self._ends[: _width(batch)], self._ends[_width(batch) :]
        self._ends = [*rest, *([base_id(jobs[0])] for _ in taken)]


def _width(batch: Batch) -> int:
    """How many of its runs may run at a time."""
    return 1 if batch.together else len(batch.requests)
