"""Batches that a rank reads itself, from a source whose samples are written to where they are wanted."""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor

from hpcddp.data.source import Batch, GatheredSource, Wait, new_room

Place = tuple[int, int]
"""Epoch and step."""


class IndexedSteps(Protocol):
    """Which samples a rank has in which step."""

    def indices(self, place: Place) -> Tensor:
        """Of that step."""
        ...

    def steps_of(self, epoch: int) -> int:
        """How many steps the epoch has."""
        ...


class RankBatches:
    """One call gathers a batch; where the source reads from a disk, those of the next steps are then on their way."""

    def __init__(self, source: GatheredSource, steps: IndexedSteps, *, pin_memory: bool) -> None:
        self._source = source
        self._steps = steps
        self._pin_memory = pin_memory
        self._begun: dict[Place, tuple[Batch, Wait]] = {}

    def __getitems__(self, place: Place) -> Batch:
        batch, wait = self._begun.pop(place) if place in self._begun else self._begin(place)
        if self._source.samples_ahead:
            self._begun = {later: self._begun.get(later) or self._begin(later) for later in self._following(place, len(batch[1]))}
        wait()
        return batch

    def _begin(self, place: Place) -> tuple[Batch, Wait]:
        indices = self._steps.indices(place)
        room = new_room(len(indices), self._source.shape, pin_memory=self._pin_memory)
        return room, self._source.gather(indices, *room)

    def _following(self, place: Place, samples: int) -> list[Place]:
        epoch, step = place
        last = min(step + math.ceil(self._source.samples_ahead / samples), self._steps.steps_of(epoch) - 1)
        return [(epoch, later) for later in range(step + 1, last + 1)]
