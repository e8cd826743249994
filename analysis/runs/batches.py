"""The batch of each step, where it grows between epochs, the steps that are alike in it, and those that begin an epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.core.schema import LARGEST_INT

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
