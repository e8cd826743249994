"""What ranks compare of their data: how many samples, in which order, and the content of a few."""

from __future__ import annotations

import contextlib
import random
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset

from hpcddp.data.loading import data_loader, read_batch
from hpcddp.data.sampling import EpochOrder
from hpcddp.data.source import Batch, Source, to_bytes

SAMPLES = 8
"""Evenly spread, the first and the last among them. Of ten classes in another order, labels alone miss it once in 10^7."""

SEED = 5
"""Of every random number that is drawn while a sample is read."""


@dataclass(frozen=True, kw_only=True)
class DataFingerprint:
    """Equal in ranks whose data are."""

    samples: int
    order: int | None
    """CRC of some indices in the order of the first epoch; None where samples are not shuffled, or no batch is full."""
    places: tuple[int, ...]
    """Samples that were read."""
    labels: tuple[int, ...] | None
    images: tuple[int, ...] | None
    """A CRC for each place; None where reading a sample twice gives two different ones, as with random transforms that draw from
    a generator of their own."""


def data_fingerprint(source: Source, *, order_of: tuple[int, int] | None, workers: int) -> DataFingerprint:
    """`order_of`: seed and global batch where samples are shuffled.

    Samples are read as training reads them, in a process of the loader where there are `workers`: what a data set opens when it
    is first read must not be open before these are forked.
    """
    last = len(source) - 1
    places = sorted({last * number // (SAMPLES - 1) for number in range(SAMPLES)})
    twice = places * 2  # one by one: with one sample a batch, shapes may differ
    sums = [_sums(batch) for batch in data_loader(_Repeatable(source), twice, min(1, workers), ("fingerprint",))]
    pairs = zip(zip(*sums[: len(places)], strict=True), zip(*sums[len(places) :], strict=True), strict=True)
    images, labels = (once if once == again else None for once, again in pairs)
    order = None if order_of is None else _order(len(source), *order_of)
    return DataFingerprint(samples=len(source), order=order, places=tuple(places), labels=labels, images=images)


class _Repeatable(Dataset[Batch]):
    """Reads a sample with the same random numbers every time, and restores the generators afterwards."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitems__(self, place: int) -> Batch:
        with _seeded():
            return read_batch(self._source, torch.tensor([place]), "fingerprint")


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    numpy = sys.modules.get("numpy")  # transforms may draw from it; who has not imported it does not
    before = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        random.seed(SEED)
        if numpy:
            numpy.random.seed(SEED)
        yield
    random.setstate(before[0])
    if numpy:
        numpy.random.set_state(before[1])


def _sums(sample: Batch) -> tuple[int, int]:
    images, labels = sample
    return zlib.crc32(to_bytes(images)), zlib.crc32(to_bytes(labels))


def _order(samples: int, seed: int, global_batch: int) -> int | None:
    """CRC of the indices in the first epoch's first and last global batch; None where no batch is full."""
    steps = samples // global_batch
    if not steps:
        return None
    within = torch.arange(global_batch)
    taken = EpochOrder(samples, seed, 0).samples_at(torch.cat([within, within + (steps - 1) * global_batch]))
    return zlib.crc32(to_bytes(taken))
