"""What a run's training came to: the samples it trained, and its loss at the start and at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
