"""When a run has enough timed steps: pure arithmetic on the times of its steps so far. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median
from typing import NamedTuple

from hpcddp.core.batch_means import MeanInterval, mean_interval
from hpcddp.core.point import Measure
from hpcddp.worker.training.steady_state import warmup_steps

STRETCH_S = 2.0
"""Pauses are at least so far apart: one costs milliseconds and a step that does not count."""

FIRST_STEPS = 10
"""How many steps are made to see how long one lasts, where no warm-up has shown it."""

MARGIN = 1.02
"""A stretch that shall be the last is so much longer than it seems to need: else many a run takes another of a few steps."""


class More(NamedTuple):
    """How many timed steps to make before looking again; with 0, what ended them."""

    steps: int
    stopped_by: str


class Steady(NamedTuple):
    """The steps of a run that count."""

    detected_steps: int | None
    """Where MSER-5 sees the end of the warm-up, whether it is asked to cut there or not; None for too few steps."""
    from_step: int
    interval: MeanInterval | None
    """None where no step counts yet."""


def steady_state(measure: Measure, times_ns: Sequence[int], pauses: Collection[int]) -> Steady:
    """`times_ns`: of all steps, warm-up included; `pauses`: the steps that began after one."""
    detected = warmup_steps(times_ns)
    from_step = max(measure.warmup_steps, detected or 0) if measure.warmup == "detect" else measure.warmup_steps
    counted = [time for step, time in enumerate(times_ns) if step >= from_step and step not in pauses]
    return Steady(detected, from_step, mean_interval(counted) if counted else None)


def more_for_seconds(measure: Measure, times_ns: Sequence[int]) -> More:
    """Until the timed steps have lasted `measure.seconds`: stretches as long as all before them, the last as long as is left."""
    timed = times_ns[measure.warmup_steps :]
    elapsed_s = sum(timed) / 1e9
    left_s = (measure.seconds or 0.0) - elapsed_s
    if left_s <= 0:
        return More(0, "seconds")
    step_s = fmean(timed) / 1e9 if timed else median(times_ns) / 1e9 if times_ns else None
    stretch_s = min(left_s * MARGIN, max(elapsed_s, STRETCH_S))
    return _at_most(math.ceil(stretch_s / step_s) if step_s else FIRST_STEPS, measure, len(timed))


def more_for_interval(measure: Measure, times_ns: Sequence[int], pauses: Collection[int]) -> More:
    """First `measure.steps`; then as many as the interval of the mean still needs, but not more than there are.

    An interval is as wide as 1 / sqrt(steps). It is looked at a few times only: each look is a chance to stop on a lucky one.
    """
    timed = len(times_ns) - measure.warmup_steps
    if timed <= 0:
        return _at_most(measure.steps, measure, 0)
    found = steady_state(measure, times_ns, pauses).interval
    half = found.half_percent if found else None
    if half is not None and half <= measure.interval_percent:
        return More(0, "interval")
    needed = math.inf if half is None else timed * (MARGIN * (half / measure.interval_percent) ** 2 - 1)
    stretch = STRETCH_S * 1e9 / median(times_ns)
    return _at_most(math.ceil(max(min(needed, timed), stretch)), measure, timed)


def _at_most(steps: int, measure: Measure, timed: int) -> More:
    return More(min(steps, measure.max_steps - timed), "max_steps")
