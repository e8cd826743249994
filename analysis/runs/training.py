"""What a run's training came to: samples, the loss at the start and at the end, and the batch of each step, where it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.records.steps import Floats, RunSteps, losses_e9
from hpcddp.core.schema import LARGEST_INT

LOSS_STEPS = 10
"""Steps at either end that a loss is the mean of: one batch's own loss differs from the next one's by a tenth and more. Fewer in
a run of less than twice as many."""


@dataclass(frozen=True, kw_only=True)
class LossEnds:
    """The training loss over the first and over the last `steps` steps, warm-up included: the mean over them and over ranks.

    None where one of these steps has no known loss.
    """

    start: float | None
    end: float | None
    steps: int


def loss_ends(steps: RunSteps, first: float | None, last: float | None) -> LossEnds | None:
    """By the step rows; of rows without losses by `first` and `last`, end.json's of a single step each. None where neither is
    known."""
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
    where it is that of half of the steps or fewer, as of batches of any size.
    """
    found, counts = np.unique(batches, return_counts=True)
    return int(found[counts.argmax()]) if found.size > 1 and not (most and 2 * counts.max() <= batches.size) else None


def samples_of(batches: Batches) -> int | None:
    """What these steps train; None where that is more than can be true."""
    found, counts = np.unique(batches, return_counts=True)
    samples = sum(batch * steps for batch, steps in zip(found.tolist(), counts.tolist(), strict=True))
    return samples if samples <= LARGEST_INT else None
