"""Batches of a source whose samples are written to where they are wanted: gathered into memory that is used again."""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor
from torch.utils.data import get_worker_info

from hpcddp.data.batches.batch_memory import BatchMemory
from hpcddp.data.source import Batch, GatheredSource, Wait, at_once, new_room

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
        self._memory = BatchMemory(
            source.shape
        )  # of one batch after the other, torch's allocator is as good, and takes less time
        self._reuses = source.samples_ahead > 0 and not pin_memory
        self._begun: dict[Place, tuple[Batch, Wait]] = {}

    def __getitems__(self, place: Place) -> Batch:
        batch, wait = self._begun.pop(place) if place in self._begun else self._begin(place)
        if self._source.samples_ahead:
            self._begin_following(place, len(batch[1]))
        wait()
        return batch

    def _begin(self, place: Place) -> tuple[Batch, Wait]:
        indices = self._steps.indices(place)
        count = indices.numel()
        room = self._memory.room(count) if self._reuses else new_room(count, self._source.shape, pin_memory=self._pin_memory)
        return room, self._source.gather(indices, *room)

    def _begin_following(self, place: Place, samples: int) -> None:
        """No further than to one that needs no waiting for."""
        begun, self._begun = self._begun, {}
        for later in self._following(place, samples):
            self._begun[later] = begun.get(later) or self._begin(later)
            if self._begun[later][1] is at_once:
                break

    def _following(self, place: Place, samples: int) -> list[Place]:
        """The next places of this process: of several that load for a rank, each has every so manieth."""
        (epoch, step), info = place, get_worker_info()
        stride = info.num_workers if info else 1
        end = min(step + 1 + stride * math.ceil(self._source.samples_ahead / samples), self._steps.steps_of(epoch))
        return [(epoch, later) for later in range(step + stride, end, stride)]
