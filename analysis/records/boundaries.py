"""How long single steps lasted, between boundaries that all ranks share: the end of a step's exchange on rank 0's clock.

A rank's own step ends where the rank ends it, a little sooner or later each time. The mean of many steps is the same; by such
times the variation of single steps would be overstated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpcddp.analysis.records.clocks import clocks_known
from hpcddp.analysis.records.exchange_windows import ExchangeWindows
from hpcddp.analysis.records.steps import RunSteps
from hpcddp.core.attempt_records import RankEnd


def with_shared_boundaries(steps: RunSteps, windows: ExchangeWindows, ranks: Sequence[RankEnd]) -> RunSteps:
    """The steps, each timed from the end of the exchange before it to the end of its own, when the last rank has its gradients.

    Where that is not known they are returned as they are: without all-reduces, exposed communication or clocks of every rank, and
    after a pause.
    """
    follows = np.flatnonzero(windows.follow)
    if not follows.size or len(windows.ranks) != len(ranks) or not windows.exposed or not clocks_known(ranks):
        return steps
    ends_ns = windows.at_rank_0("end_ns", np.ones(windows.numbers.size, np.bool_)).max(axis=0)
    lasted_ns = ends_ns[follows] - ends_ns[follows - 1]
    step_ns = steps.step_ns.copy()
    step_ns[np.searchsorted(steps.step, windows.numbers[follows])] = lasted_ns
    return replace(steps, step_ns=step_ns) if (lasted_ns > 0).all() else steps
