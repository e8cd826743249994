"""How many batches each loader process reads ahead: two, as is torch's usual, or one where memory is short."""

from __future__ import annotations

import math
from typing import NamedTuple

from hpcddp.data.source import FactsSource, Source

USUAL = 2
"""torch's own prefetch_factor. More smooths no more: a process that is behind stays behind."""

OWN_BYTES = 4
"""Of a number of a user's own source, which may give floating point; known sources give a byte."""


class Prefetch(NamedTuple):
    """Of a rank."""

    batches: int
    """That each process reads ahead."""
    cut: str | None = None
    """Why these are fewer than USUAL, as a sentence."""


def batch_bytes(source: Source, samples: int) -> int:
    """Of the images of a batch, about; labels are next to nothing."""
    return samples * math.prod(source.shape) * (1 if isinstance(source, FactsSource) else OWN_BYTES)


def prefetch(workers: int, size_bytes: int, room_bytes: int | None) -> Prefetch:
    """What fits: the batches of all processes and the one that the rank trains on. `room_bytes`: None is unknown."""
    if not workers or room_bytes is None:
        return Prefetch(USUAL)
    fits = (room_bytes // max(1, size_bytes) - 1) // workers
    if fits >= USUAL:
        return Prefetch(USUAL)
    advice = "" if fits else ", which may not fit either: lower workload.loader_workers_per_rank or batch_per_gpu"
    ahead = f"{USUAL} batches of {_mib(size_bytes)} read ahead by each of {workers} loader process{'es' * (workers > 1)}"
    taken = _mib((USUAL * workers + 1) * size_bytes)
    room = f"a rank has {_mib(room_bytes)} of memory for them"
    return Prefetch(1, f"{ahead} would take {taken}, and {room}: each reads 1 ahead{advice}")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB" if size_bytes < 100 * 2**20 else f"{size_bytes / 2**20:,.0f} MiB"
