"""How many samples a batch of a script's has, which the last one of an epoch, and ragged ones, have fewer of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any

Place = tuple[Hashable, ...]
"""In a batch: keys and numbers of its parts, then a dimension of a tensor, or LENGTH of a list."""

LENGTH = "length"

MOST_PARTS = 16
"""Of a batch, or of a part of it, that are looked at: a list may have a part for each sample."""


class BatchSize:
    """Reads the same place of every batch, by the first: what its loader says, the script says, or its tensors share."""

    def __init__(self, declared: int) -> None:
        """`declared`: of a batch, as the script says."""
        self._declared = declared
        self.samples_of: Callable[[Any], int] | None = None
        """The script's own function, which is asked instead."""
        self._place: Place | None = None
        self._is_chosen = False
        self.has_tensors = True
        """False: the loop fetches its data by itself."""

    def of(self, batch: Any, loader: Any) -> int | None:
        """None where the batch does not show it."""
        if self.samples_of:
            return int(self.samples_of(batch))
        found = _sizes(batch)
        if not self._is_chosen:
            self._place, self._is_chosen = self._choose(found, getattr(loader, "batch_size", None)), True
            self.has_tensors = bool(found)
        return found.get(self._place) if self._place is not None else None

    def _choose(self, found: Mapping[Place, int], of_loader: Any) -> Place | None:
        first = [place for place in found if place[-1] == 0]
        lists = [place for place in found if place[-1] == LENGTH]
        second = [place for place in found if place[-1] == 1]
        places = [*first, *lists, *second]
        for size in (of_loader, self._declared):
            if alike := [place for place in places if found[place] == size]:
                return alike[0]
        return first[0] if len({found[place] for place in first}) == 1 else None


def _sizes(batch: Any, place: Place = ()) -> dict[Place, int]:
    """Of its tensors and arrays the first two dimensions, of its lists the lengths."""
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        return {(*place, dimension): size for dimension, size in enumerate(shape[:2])}
    found: dict[Place, int] = {}
    if isinstance(batch, (list, tuple)):
        found[(*place, LENGTH)] = len(batch)
    parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch) if found else ()
    for key, part in islice(parts, MOST_PARTS):
        found |= _sizes(part, (*place, key))
    return found
