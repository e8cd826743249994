"""How long a run's steps were: a typical one beside the mean that rates come from, and those that stall."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import Floats, RunSteps, after_pauses, mean_step_ns, median_step_ns

CLOCK_PACE = 1e-4
"""By which clocks of two nodes may go apart: quartzes are good to 50 millionths, and a GPU's is not steered."""


@dataclass(frozen=True)
class TypicalStep:
    """Of a run's steady steps."""

    median_ns: float
    p05_ns: float
    """5 % are shorter."""
    p95_ns: float
    p99_ns: float


def typical_step(steps: RunSteps) -> TypicalStep:
    """At least one steady step."""
    p05, p95, p99 = np.quantile(steps.step_ns[steps.steady], (0.05, 0.95, 0.99)).tolist()
    return TypicalStep(median_step_ns(steps) or 0.0, p05, p95, p99)


def windows_apart(steps: RunSteps) -> tuple[float, float] | None:
    """The shortest and the longest of the ranks' windows, ns, where they differ by more than can be: a step for each stretch
    between pauses, and what clocks may drift. None where they do not, as with all ranks that wait for each other, or unknown.
    """
    least, most = float(steps.window_ns.min()), float(steps.window_ns.max())
    begins = np.diff(steps.steady.astype(np.int8), prepend=0) == 1
    stretches = np.count_nonzero(begins | (steps.steady & after_pauses(steps)))
    may = stretches * float(mean_step_ns(steps) or 0) + CLOCK_PACE * most
    return (least, most) if most - least > may else None


APART = 0.03
"""Of the median: mean and median of a sound run differ by less, of noise with a tail (exponential, 5 % of the step) by 1.5 %."""

FEWEST = 20
"""Steady steps: of fewer a single one decides."""

CHANCE = 3.0
"""Standard errors by which mean and median of symmetric noise do not differ."""

ERROR_OF_DIFFERENCE = math.sqrt(math.pi / 2 - 1)
"""Of mean - median of n normal values, times their deviation / sqrt(n): their variances are 1 / n and pi / 2 n, the covariance
is 1 / n.
"""

TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)
"""Of a normal distribution, standard deviation / median absolute deviation."""

AFTER_PAUSE = 3
"""Steps that may still feel what was done in a pause, besides the first one after it."""

CAUSES = {
    "data": ("data_wait",),
    "records": ("record",),
    "computation": ("h2d_exposed", "forward", "backward", "optimizer", "other"),
}
"""What long steps may be long in, besides communication -> the parts of a rank's own time."""


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Of one run; steps are parted into long ones and others so that these differ most."""

    mean_ns: float
    median_ns: float
    long_share: float
    """Of the steps."""
    long_ns: float
    other_ns: float
    of: Mapping[str, float]
    """Share of the difference that is longer `communication`, or that one of CAUSES makes up on the rank that is late."""
    after_pause: float
    """Share of the long steps that are among the first after a pause, if few steps are."""


def evened(steps: RunSteps, begins: NDArray[np.bool_]) -> RunSteps:
    """The steps, without the difference between the mean of those that begin an epoch and the mean of the others: every epoch has
    it, so it is no noise, no warm-up and no stall.
    """
    first, others = steps.steady & begins, steps.steady & ~begins
    if not first.any() or not others.any():
        return steps
    sum_ns, step_ns = steps.sum_ns.astype(np.float64), steps.step_ns.copy()
    for times in (sum_ns, step_ns):
        mean = times[steps.steady].mean()
        for kind in (first, others):
            times[kind] += mean - times[kind].mean()
    return replace(steps, sum_ns=sum_ns, step_ns=step_ns)


def stalls(steps: RunSteps, counted: NDArray[np.bool_]) -> Stalls | None:
    """Of those of the steady steps that are `counted`; None where mean and median go together, or by chance do not."""
    which = steps.steady & counted
    times = steps.step_ns[which]
    if times.size < FEWEST:
        return None
    mean, median = float(times.mean()), float(np.median(times))
    noise = TO_DEVIATION * float(np.median(np.abs(times - median)))
    if abs(mean - median) <= max(APART * median, CHANCE * ERROR_OF_DIFFERENCE * noise / math.sqrt(times.size)):
        return None
    limit, _ = threshold(times)
    long = times > limit
    return Stalls(
        mean_ns=mean,
        median_ns=median,
        long_share=float(long.mean()),
        long_ns=float(times[long].mean()),
        other_ns=float(times[~long].mean()),
        of=_causes(steps, which, long),
        after_pause=_after_pause(steps, which, long),
    )


def threshold(times: Floats) -> tuple[float, float]:
    """The greatest fast value for which most of the variance lies between fast and slow, and the share that does (Otsu 1979)."""
    ordered = np.sort(times)
    n, below = ordered.size, np.arange(1, ordered.size)
    sums = np.cumsum(ordered)
    fast, slow = sums[:-1] / below, (sums[-1] - sums[:-1]) / (n - below)
    between = np.where(ordered[1:] > ordered[:-1], below * (n - below) * (slow - fast) ** 2 / n**2, 0)
    best = int(between.argmax())
    return float(ordered[best]), float(between[best] / ordered.var())


def _causes(steps: RunSteps, which: NDArray[np.bool_], long: NDArray[np.bool_]) -> dict[str, float]:
    """While one rank stalls, the others' communication is longer: what counts is how much longer the latest rank needs by itself,
    and in which parts ranks do; only what that leaves is communication.
    """

    def longer(values: Floats) -> float:
        return max(0.0, float(values[long].mean() - values[~long].mean())) if np.isfinite(values).all() else 0.0

    longer_ns = longer(steps.step_ns[which])
    by_itself = min(longer_ns, longer(steps.own_ns[:, which].max(axis=0)))
    parts = {cause: sum(longer(steps.part_ns[part][which]) for part in of) for cause, of in CAUSES.items()}
    known = sum(parts.values())
    share = by_itself / longer_ns / known if longer_ns and known else 0.0
    return {"communication": 1 - by_itself / longer_ns if longer_ns else 0.0} | {cause: share * ns for cause, ns in parts.items()}


def _after_pause(steps: RunSteps, which: NDArray[np.bool_], long: NDArray[np.bool_]) -> float:
    places, begins = np.arange(steps.steady.size), ~steps.steady | after_pauses(steps)
    since = places - np.maximum.accumulate(np.where(begins, places, -AFTER_PAUSE - 1))
    first = (since <= AFTER_PAUSE)[which]
    return float(first[long].mean()) if 4 * first.sum() <= first.size else 0.0
