"""Further steps of a script's loop, behind its timed ones, under torch.profiler: they leave no rows."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from hpcddp.core.attempt_records import ProfiledExchange
from hpcddp.core.point import Point
from hpcddp.core.records import STEP_COLUMNS, trace_file
from hpcddp.worker.comm.trace import Event, events_of, profiled_exchange, read_trace
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.profiling import export_trace, step_profiler

CHECKED_STEPS = 8
"""With `comm: check`, unless more are profiled anyway."""

EXPOSED = STEP_COLUMNS.index("comm_exposed_ns")


class ProfiledWindow:
    """Of one rank. A first step warms the profiler up; it slows all ranks alike."""

    def __init__(self, steps: int, timer: StepTimer, trace: Path | None, *, reads: bool) -> None:
        """`trace`: where to leave what the profiler saw; `reads`: what it says of the exchange is to be known."""
        self._steps = steps
        self._timer = timer
        self._trace, self._reads = trace, reads
        self._events: list[Event] | None = None
        self._made, self._begun = 0, False
        self._profiler = step_profiler(steps, self._read)

    def begin(self) -> None:
        self._begun = True
        self._timer.restart()
        self._profiler.start()

    def end_step(self) -> bool:
        """Whether all are made."""
        self._profiler.step()
        self._made += 1
        if self._made <= self._steps:
            return False
        self._profiler.stop()
        return True

    def abort(self) -> None:
        """The loop ended before them: nothing is known."""
        if self._made <= self._steps:
            self._made = -1
            self._profiler.stop()

    def exchange(self) -> ProfiledExchange | None:
        """What is known of it; drains the timer of the window's steps."""
        if not self._begun:
            return None
        rows = [step.row for step in self._timer.drain()]
        if self._events is None:
            return None
        exposed_ns = [row[EXPOSED] for row in rows[1:]]
        known = [float(each) for each in exposed_ns if each is not None]
        return profiled_exchange(self._events, median(known) / 1e9 if len(known) == self._steps else None)

    def _read(self, profiler: Any) -> None:
        if self._made < self._steps:
            return  # the loop ended before
        if self._trace:
            export_trace(profiler, self._trace)
        if self._reads:
            self._events = read_trace(self._trace) if self._trace else events_of(profiler)


def window_of(point: Point, rank: int, timer: StepTimer, attempt: Path) -> ProfiledWindow | None:
    """None where nothing is profiled."""
    measure = point.measure
    checks = measure.comm == "check" and point.ranks > 1
    steps = max(measure.profile_steps, CHECKED_STEPS if checks else 0)
    if not steps:
        return None
    keeps = measure.profile_steps and rank in measure.profile_ranks
    return ProfiledWindow(steps, timer, trace_file(attempt, rank) if keeps else None, reads=checks)
