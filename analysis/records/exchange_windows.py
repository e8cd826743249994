"""When in each step a rank had nothing left to compute, and when it had its gradients: of all ranks, from their step rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.clocks import Ints, clocks_known, to_rank_0
from hpcddp.analysis.records.csv_reader import EXACT, Columns
from hpcddp.analysis.records.steps import ALL_STEPS, RunSteps, StepSpan, or_zero, steady_rows
from hpcddp.core.attempt_records import RankEnd
from hpcddp.core.records import AFTER_PAUSE

AFTER_EXCHANGE = ("optimizer", "record", "other")
"""The parts of a step that follow its exposed communication."""

STEP_TYPES = {
    **dict.fromkeys(("step", "flags", "start_ns", "total_ns"), "int64"),
    **dict.fromkeys(("comm_exposed_ns", *(f"{part}_ns" for part in AFTER_EXCHANGE)), "float64"),
}


@dataclass(frozen=True)
class ExchangeWindow:
    """Of a rank's steps, on its own timeline: the start, and the begin and the end of its exposed communication."""

    start_ns: Ints
    begin_ns: Ints
    end_ns: Ints


class ExchangeWindows:
    """The windows of all ranks in the steps that count. Step tables are added rank by rank, one at a time.

    `first`: rank 0's table of all-reduces, where it is known already: steps without any are left out.
    """

    def __init__(self, ranks: Sequence[RankEnd], span: StepSpan = ALL_STEPS, first: Columns | None = None) -> None:
        self._entries, self._span, self.first = ranks, span, first
        self._rows, self._places = 0, np.zeros(0, np.intp)
        self.ranks: list[ExchangeWindow] = []
        self.numbers = np.zeros(0, np.int64)
        """Of the steps."""
        self.follow = np.zeros(0, np.bool_)
        """Whether each begins where the step before it in `numbers` ended."""
        self.exposed = True
        """Every rank measured its exposed communication."""

    def anew(self) -> ExchangeWindows:
        """The same without any rank's table."""
        return ExchangeWindows(self._entries, self._span, self.first)

    def add(self, columns: Columns) -> None:
        """Adds the next rank's windows, if it has as many rows as the first, and all its totals are measured and possible."""
        if not self.ranks:
            self._rows, self._places = columns["step"].size, np.flatnonzero(self._counting(columns))
            self.numbers = columns["step"][self._places]
            paused = (columns["flags"][self._places] & AFTER_PAUSE) > 0
            self.follow = (np.diff(self.numbers, prepend=self.numbers[:1]) == 1) & ~paused
        if columns["step"].size != self._rows or not (columns["total_ns"] < EXACT).all():
            return
        self.exposed = self.exposed and bool(np.isfinite(columns["comm_exposed_ns"]).any())
        self.ranks.append(_window({name: columns[name][self._places] for name in STEP_TYPES}))

    def _counting(self, columns: Columns) -> NDArray[np.bool_]:
        """Which rows belong to steps that count."""
        steady = steady_rows(columns, self._span)
        if self.first:
            steady &= np.isin(columns["step"], self.first["step"])
        return steady

    def exchanged(self, step: int) -> bool:
        """Whether rank 0's table has all-reduces of that step: all ranks record the same steps."""
        return self.first is not None and bool((self.first["step"] == step).any())

    def at_rank_0(self, name: str, which: NDArray[np.bool_]) -> Ints:
        """(ranks, steps): the windows' times by that name, of some of the steps, on rank 0's timeline."""
        pairs = zip(self.ranks, self._entries, strict=True)
        return np.array([to_rank_0(getattr(window, name)[which], entry.offsets) for window, entry in pairs])


def _window(columns: Mapping[str, Any]) -> ExchangeWindow:
    """end = start + total - what comes after it; begin = end - exposed communication."""
    end = columns["start_ns"] + columns["total_ns"].astype(np.int64, copy=False)
    for part in AFTER_EXCHANGE:
        end -= or_zero(columns[f"{part}_ns"]).astype(np.int64, copy=False)
    begin = end - or_zero(columns["comm_exposed_ns"]).astype(np.int64, copy=False)
    return ExchangeWindow(columns["start_ns"], begin, end)


def with_shared_boundaries(steps: RunSteps, windows: ExchangeWindows, ranks: Sequence[RankEnd]) -> RunSteps:
    """The steps, each timed from the end of the exchange before it to the end of its own, when the last rank has its gradients.

    A rank's own step ends where the rank ends it, a little sooner or later each time: the variation of single steps would be
    overstated. Where that end is not known they are as they were: without all-reduces, exposed communication or clocks of every
    rank, and after a pause.
    """
    follows = np.flatnonzero(windows.follow)
    if not follows.size or len(windows.ranks) != len(ranks) or not windows.exposed or not clocks_known(ranks):
        return steps
    ends_ns = windows.at_rank_0("end_ns", np.ones(windows.numbers.size, np.bool_)).max(axis=0)
    lasted_ns = ends_ns[follows] - ends_ns[follows - 1]
    step_ns = steps.step_ns.copy()
    step_ns[np.searchsorted(steps.step, windows.numbers[follows])] = lasted_ns
    return replace(steps, step_ns=step_ns) if (lasted_ns > 0).all() else steps
