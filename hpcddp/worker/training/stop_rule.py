"""Where the warm-up of a run ends, and when it has enough timed steps: pure arithmetic on the times of its steps so far.
Standard library only.

The interval that stops a run and the one that analysis shows (analysis/runs/step_times.py) are one function, mean_interval of
core/batch_means. The run applies it to rank 0's steps, analysis to the mean over all ranks of each: their widths differ by a
tenth at most (tests/analysis/study/test_intervals.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median
from typing import NamedTuple

from hpcddp.core.batch_means import MeanInterval, mean_interval
from hpcddp.core.point import Measure

BATCH = 5
"""The 5 of MSER-5."""

FEWEST = 20 * BATCH
"""Steps below which no warm-up is detected: of fewer than 20 means of five, chance decides."""

FEWEST_MEANS_LEFT = 5
"""After a cut: of fewer means, chance makes the error small."""

LATER_CUT_SHARE = 0.25
"""A cut in the second half whose error is below this share of the best one in the first half: the times settle there, if ever.
Of sound series (AR(1) up to 0.9, 100 to 2000 steps) one in fifty has one."""

LAST_CUT_SHARE = 0.5
"""The share where the best cut of the first half is its last: a steady fall over all steps has 0.25 there."""

WINSORISED_AT = 0.9


def warmup_steps(times_ns: Sequence[int]) -> int | None:
    """How many steps at the start belong to the warm-up. None where that cannot be seen: of fewer than FEWEST steps, and where
    they settle in the second half, if ever.

    MSER-5: of the means z_1..z_m of five steps each, leave out the first d with the smallest sum over i > d of
    (z_i - mean of z_(d+1)..z_m)^2 / (m - d)^2, d <= m/2 (White 1997, An effective truncation heuristic for bias reduction in
    simulation output, Simulation 69(6); White, Cobb & Spratt 2000 for means of five). Steps slower than the 90th percentile
    count as that: else a single spike looks like the end of a warm-up.
    """
    if len(times_ns) < FEWEST:
        return None
    means = _winsorised_means(times_ns)
    centre = sum(means) / len(means)
    total = squares = 0.0
    errors = [0.0] * len(means)
    for cut in range(len(means) - 1, -1, -1):
        away, left = means[cut] - centre, len(means) - cut
        total += away
        squares += away * away
        errors[cut] = (squares - total * total / left) / left**2
    half = len(means) // 2
    allowed, later = errors[: half + 1], errors[half + 1 : len(means) - FEWEST_MEANS_LEFT + 1]
    cut, least = allowed.index(min(allowed)), min(allowed)
    share = LAST_CUT_SHARE if cut == half else LATER_CUT_SHARE
    return None if min(later, default=least) < share * least else BATCH * cut


def _winsorised_means(times_ns: Sequence[int]) -> list[float]:
    most = sorted(times_ns)[int(WINSORISED_AT * (len(times_ns) - 1))]
    capped = [min(time, most) for time in times_ns]
    return [sum(capped[start : start + BATCH]) / BATCH for start in range(0, len(capped) - BATCH + 1, BATCH)]


SHORTEST_STRETCH_S = 2.0
"""Between two pauses: a pause costs milliseconds."""

FIRST_STEPS = 10
"""Made to measure how long a step lasts, where no warm-up has shown it."""

MARGIN = 1.02
"""The last stretch is planned so much longer than it seems to need: else many a run would take another of a few steps."""


class More(NamedTuple):
    """How many timed steps to make before the rule is applied again; with 0, what ended them."""

    steps: int
    stopped_by: str


class SteadyState(NamedTuple):
    """The steps of a run that count."""

    detected_steps: int | None
    """The end of the warm-up by MSER-5, whether the run cuts there or not; None for too few steps."""
    from_step: int
    interval: MeanInterval | None
    """None where no step counts yet."""


def steady_state(measure: Measure, times_ns: Sequence[int], pauses: Collection[int]) -> SteadyState:
    """`times_ns`: of all steps, warm-up included; `pauses`: the steps after one that the interval leaves out."""
    detected = warmup_steps(times_ns)
    from_step = max(measure.warmup_steps, detected or 0) if measure.warmup == "detect" else measure.warmup_steps
    counted = [time for step, time in enumerate(times_ns) if step >= from_step and step not in pauses]
    return SteadyState(detected, from_step, mean_interval(counted) if counted else None)


def more_for_seconds(measure: Measure, times_ns: Sequence[int]) -> More:
    """Until the timed steps have lasted `measure.seconds`: stretches as long as all before them, the last as long as is left."""
    timed = times_ns[measure.warmup_steps :]
    elapsed_s = sum(timed) / 1e9
    left_s = (measure.seconds or 0.0) - elapsed_s
    if left_s <= 0:
        return More(0, "seconds")
    step_s = fmean(timed) / 1e9 if timed else median(times_ns) / 1e9 if times_ns else None
    stretch_s = min(left_s * MARGIN, max(elapsed_s, SHORTEST_STRETCH_S))
    return _at_most(math.ceil(stretch_s / step_s) if step_s else FIRST_STEPS, measure, len(timed))


def more_for_interval(measure: Measure, times_ns: Sequence[int], pauses: Collection[int]) -> More:
    """First `measure.steps`; then as many as the interval of the mean still needs, but not more than there are. An interval is as
    wide as 1 / sqrt(steps). It is computed a few times only: each time is a chance to stop at a lucky one."""
    timed = len(times_ns) - measure.warmup_steps
    if timed <= 0:
        return _at_most(measure.steps, measure, 0)
    found = steady_state(measure, times_ns, pauses).interval
    half = found.half_percent if found else None
    if half is not None and half <= measure.interval_percent:
        return More(0, "interval")
    needed = math.inf if half is None else timed * (MARGIN * (half / measure.interval_percent) ** 2 - 1)
    stretch = SHORTEST_STRETCH_S * 1e9 / median(times_ns)
    return _at_most(math.ceil(max(min(needed, timed), stretch)), measure, timed)


def _at_most(steps: int, measure: Measure, timed: int) -> More:
    return More(min(steps, measure.max_steps - timed), "max_steps")
