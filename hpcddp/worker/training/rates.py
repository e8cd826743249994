"""The learning rate of each step: scaled to the global batch, warmed up, then constant or falling. Pure arithmetic."""

from __future__ import annotations

import math

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.optimizer import Optimizer
from hpcddp.core.point import Point


def scaled_rate(chosen: Optimizer, global_batch: int) -> float:
    """`lr` for a global batch of that size.

    linear: Goyal et al. (2017), arXiv 1706.02677. sqrt: Krizhevsky (2014), arXiv 1404.5997.
    """
    times = 1.0 if chosen.base_batch is None else global_batch / chosen.base_batch
    if chosen.scaling == "linear":
        return chosen.lr * times
    return chosen.lr * math.sqrt(times) if chosen.scaling == "sqrt" else chosen.lr


class RateSchedule:
    """The rates of a point's steps. Each is a function of the step alone, so that a run that goes on needs no state of it.

    Why not torch's schedulers, which give the same (tests/worker/test_rates.py): each makes a rate from the one before it, so
    that a checkpoint would have to hold them, and a warm-up takes a second one, and a third around both.
    """

    def __init__(self, point: Point, plan: EpochPlan) -> None:
        self._chosen = point.workload.optimizer
        self._plan = plan
        self._warmup = round(self._chosen.warmup_epochs * plan.steps_of(0))
        self._steps = plan.first_step(point.measure.epochs or 1)
        grows = bool(plan.grows_at) and self._chosen.scaling != "none"
        self.varies = self._warmup > 0 or self._chosen.schedule != "constant" or grows

    def rate(self, step: int) -> float:
        """Of that step of the run, the first being 0."""
        peak = scaled_rate(self._chosen, self._plan.batch_at(step))
        if step < self._warmup:
            return peak * (step + 1) / self._warmup
        return peak * self._share(step)

    def _share(self, step: int) -> float:
        """Of the peak, after the warm-up."""
        chosen = self._chosen
        if chosen.schedule == "step":
            epochs, _ = self._plan.epoch_at(step)
            return chosen.decay_factor ** sum(1 for epoch in chosen.decay_at_epochs if epoch <= epochs)
        past = (step - self._warmup) / (self._steps - self._warmup)
        if chosen.schedule == "cosine":
            return (1 + math.cos(math.pi * past)) / 2
        return (1 - past) ** chosen.power if chosen.schedule == "polynomial" else 1.0
