"""How long a run's steps were: a typical one beside the mean that rates come from, all of them by bins, those that stall; and
what they trained: samples, the loss at both ends, and the batch of each step, where it grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.records.steps import Floats, RunSteps, after_pauses, losses_e9, mean_step_ns, median_step_ns
from hpcddp.core.batch_means import mean_interval
from hpcddp.core.schema import LARGEST_INT

LOSS_STEPS = 10
"""Steps at either end that a loss is the mean of, as batches differ by a tenth; fewer in a run of less than twice them."""


@dataclass(frozen=True, kw_only=True)
class LossEnds:
    """The loss over the first and the last `steps` steps, the mean of ranks; None where one of them has no known loss."""

    start: float | None
    end: float | None
    steps: int


def loss_ends(steps: RunSteps, first: float | None, last: float | None) -> LossEnds | None:
    """By step rows; of rows without losses `first` and `last`, end.json's of one step each. None where neither is known."""
    if steps.loss_e9 is None or not np.isfinite(steps.loss_e9).any():
        return None if first is None and last is None else LossEnds(start=first, end=last, steps=1)
    losses = losses_e9(steps)
    window = max(1, min(LOSS_STEPS, losses.size // 2))
    begins = np.array_equal(steps.step[:window], np.arange(window))
    return LossEnds(start=_mean(losses[:window]) if begins else None, end=_mean(losses[-window:]), steps=window)


def samples_trained(steps: RunSteps, global_batch: int) -> int | None:
    """By all ranks from the run's first step on; None where there are more than can be true."""
    made = int(steps.step[-1]) + 1
    mean = np.nan if steps.samples is None else float(steps.samples.mean())
    samples = round(made * mean) if np.isfinite(mean) else made * global_batch
    return samples if samples <= LARGEST_INT else None


def _mean(losses_e9: Floats) -> float | None:
    mean = float(losses_e9.mean()) / 1e9
    return mean if np.isfinite(mean) else None


Batches = NDArray[np.int64]
"""Global, of each step."""


def batch_of_steps(numbers: NDArray[np.int64], epochs: Sequence[Epoch] | None, batch: int) -> Batches:
    """By the rows of epochs; `batch`: of a run that has none."""
    if not epochs:
        return np.full(numbers.size, batch, np.int64)
    ends, batches = (np.array([getattr(each, name) for each in epochs], np.int64) for name in ("step", "batch"))
    return np.asarray(batches[np.minimum(np.searchsorted(ends, numbers, side="right"), ends.size - 1)])


def begins_epoch(numbers: NDArray[np.int64], epochs: Sequence[Epoch] | None) -> NDArray[np.bool_]:
    """By the rows of epochs, of each step; none of a run that has no such rows."""
    return np.isin(numbers, [0, *(each.step for each in epochs)] if epochs else [])


def timed_epochs(counted: NDArray[np.int64], epochs: Sequence[Epoch] | None) -> NDArray[np.bool_]:
    """Of each epoch, whether all its steps are among the numbers `counted`."""
    edges = [0, *(each.step for each in epochs or ())]
    return np.asarray(np.histogram(counted, edges)[0] == np.diff(edges)) if epochs else np.zeros(0, np.bool_)


def most_often(batches: Batches, *, most: bool = False) -> int | None:
    """The batch that most of these steps have, of a tie the smallest; None where all have one, or there is none. `most`: nor
    where it is that of half of the steps or fewer, as of batches of any size."""
    found, counts = np.unique(batches, return_counts=True)
    return int(found[counts.argmax()]) if found.size > 1 and not (most and 2 * counts.max() <= batches.size) else None


def samples_of(batches: Batches) -> int | None:
    """What these steps train; None where that is more than can be true."""
    found, counts = np.unique(batches, return_counts=True)
    samples = sum(batch * steps for batch, steps in zip(found.tolist(), counts.tolist(), strict=True))
    return samples if samples <= LARGEST_INT else None


WIDTH = 0.001
"""Of a bin, as a share of the times in it: half of it is how far a quantile may be off."""

Bins = tuple[tuple[int, int], ...]
"""(bin, steps in it), ascending: bin b holds times from e^(b WIDTH) to e^((b + 1) WIDTH) ns."""


@dataclass(frozen=True)
class Distribution:
    """Of one run; steps last as long as RunSteps.step_ns has it."""

    timed: Bins
    warmup: Bins
    """Of the steps before the first that counts, in each attempt."""


def distribution(attempts: Iterable[RunSteps]) -> Distribution:
    """Of a run, by the attempts that made its steps."""
    stretches = list(attempts)
    firsts = [int(np.argmax(steps.steady)) if steps.steady.any() else steps.steady.size for steps in stretches]
    before = (binned(steps.step_ns[:first]) for steps, first in zip(stretches, firsts, strict=True))
    return Distribution(pooled_bins(binned(steps.step_ns[steps.steady]) for steps in stretches), pooled_bins(before))


def binned(times_ns: Floats) -> Bins:
    """Those that were measured, above zero."""
    measured = times_ns[np.isfinite(times_ns) & (times_ns > 0)]
    bins, counts = np.unique(np.floor(np.log(measured) / WIDTH).astype(np.int64), return_counts=True)
    return tuple(zip(bins.tolist(), counts.tolist(), strict=True))


def pooled_bins(runs: Iterable[Bins]) -> Bins:
    """The steps of all of them."""
    counts: dict[int, int] = {}
    for number, count in (pair for bins in runs for pair in bins):
        counts[number] = counts.get(number, 0) + count
    return tuple(sorted(counts.items()))


def middle_ns(number: int) -> float:
    """The time that stands for a bin."""
    return math.exp((number + 0.5) * WIDTH)


def quantile_ns(bins: Bins, share: float) -> float:
    """The least time that at least this share of the steps do not exceed."""
    numbers, counts = _arrays(bins)
    return middle_ns(int(numbers[np.searchsorted(np.cumsum(counts), share * counts.sum())]))


def mean_ns(bins: Bins) -> float:
    """Of all steps; a bin's lie in its middle."""
    return sum(middle_ns(number) * count for number, count in bins) / sum(count for _, count in bins)


def shares_between(bins: Bins, edges_ns: Floats) -> Floats:
    """Of all steps those between each edge and the next; a bin's lie evenly in it, as edges may be closer than a bin is wide."""
    numbers, counts = _arrays(bins)
    until = np.cumsum(counts)
    ends, steps = (np.column_stack(each).ravel() for each in ((numbers, numbers + 1), (until - counts, until)))
    shares: Floats = np.diff(np.interp(np.log(edges_ns) / WIDTH, ends, steps)) / until[-1]
    return shares


def _arrays(bins: Bins) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    numbers, counts = np.array(bins, dtype=np.int64).reshape(-1, 2).T
    return numbers, counts


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
    between pauses, and what clocks may drift. None where they do not, as with all ranks that wait for each other, or unknown."""
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
"""Of mean - median of n normal values, times deviation / sqrt(n): variances 1 / n and pi / 2 n, covariance 1 / n."""

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
    it, so it is no noise, no warm-up and no stall."""
    first, others = steps.steady & begins, steps.steady & ~begins
    if not first.any() or not others.any():
        return steps
    sum_ns, step_ns = steps.sum_ns.astype(np.float64), steps.step_ns.copy()
    for times in (sum_ns, step_ns):
        mean = times[steps.steady].mean()
        for kind in (first, others):
            times[kind] += mean - times[kind].mean()
    return replace(steps, sum_ns=sum_ns, step_ns=step_ns)


def run_stalls(steps: RunSteps, counted: NDArray[np.bool_]) -> Stalls | None:
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
    and in which parts ranks do; only what that leaves is communication."""

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


def mean_half_percent(step_ns: Floats) -> float | None:
    """Half the 95 % interval of the mean of a run's steady steps, as a share of it; None where they are too few.

    The function that also stops a run (worker/training/stop_rule.py), there with rank 0's steps: a tenth wider or narrower at
    most, which tests/analysis/study/test_intervals.py holds.
    """
    return mean_interval(step_ns.tolist()).half_percent if step_ns.size else None
