"""Which steps make up which epoch, and how many samples each trains: the batch may grow between epochs."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hpcddp.core.point import Point


@dataclass(frozen=True)
class _Phase:
    """Epochs of one batch: where it begins, and what it has."""

    epoch: int
    step: int
    samples: int
    """Trained before it."""
    batch: int
    steps_per_epoch: int


@dataclass(frozen=True)
class EpochPlan:
    """Epochs and steps count from 0; samples that do not fill a global batch are left out of their epoch."""

    samples: int
    """Of the training set."""
    batch: int
    """Global, of the first epoch."""
    grows_at: tuple[int, ...] = ()
    """Epochs that begin with a batch `factor` times as large as the one before, ascending."""
    factor: int = 1

    @classmethod
    def of(cls, point: Point, samples: int) -> EpochPlan:
        """A point's, on so many samples."""
        chosen = point.workload.optimizer
        return cls(samples, point.global_batch, chosen.batch_at_epochs, chosen.batch_factor)

    def batch_of(self, epoch: int) -> int:
        """The global batch of its steps."""
        return self._phase_of(epoch).batch

    def batch_at(self, step: int) -> int:
        """The same of a step of the run."""
        return self._phase_at(step).batch

    def steps_of(self, epoch: int) -> int:
        """How many it has."""
        return self._phase_of(epoch).steps_per_epoch

    def first_step(self, epoch: int) -> int:
        """The number of steps before it."""
        phase = self._phase_of(epoch)
        return phase.step + (epoch - phase.epoch) * phase.steps_per_epoch

    def epoch_at(self, step: int) -> tuple[int, int]:
        """The epoch of a step of the run, and how many of its steps come before."""
        phase = self._phase_at(step)
        epochs, within = divmod(step - phase.step, phase.steps_per_epoch)
        return phase.epoch + epochs, within

    def samples_before(self, step: int) -> int:
        """How many samples the steps before that one train."""
        phase = self._phase_at(step)
        return phase.samples + (step - phase.step) * phase.batch

    def grows_after(self, step: int) -> int | None:
        """The first step behind that one with another batch; None where no batch follows."""
        return next((phase.step for phase in self._phases if phase.step > step), None)

    @functools.cached_property
    def largest_batch(self) -> int:
        """Of the last epochs."""
        return self._phases[-1].batch

    def _phase_of(self, epoch: int) -> _Phase:
        return next(phase for phase in reversed(self._phases) if phase.epoch <= epoch)

    def _phase_at(self, step: int) -> _Phase:
        return next(phase for phase in reversed(self._phases) if phase.step <= step)

    @functools.cached_property
    def _phases(self) -> tuple[_Phase, ...]:
        found = [_Phase(0, 0, 0, self.batch, self.samples // self.batch)]
        for epoch in self.grows_at:
            last = found[-1]
            steps = (epoch - last.epoch) * last.steps_per_epoch
            batch = last.batch * self.factor
            found.append(_Phase(epoch, last.step + steps, last.samples + steps * last.batch, batch, self.samples // batch))
        return tuple(found)
