"""Whether a rank evaluates the samples of its own share: a few are compared with what the source has at their index."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import torch

from hpcddp.data import Batch, Source
from hpcddp.data.batches.loading import read_batch
from hpcddp.data.source import to_bytes


class EvalWatch:
    """`due`: the indices of this rank's share, in the order in which its batches bring them."""

    PROBES = 8

    def __init__(self, due: range) -> None:
        last = len(due) - 1
        self._due = due
        self._probes = sorted({last * probe // (self.PROBES - 1) for probe in range(self.PROBES)}) if due else []
        self._crcs: dict[int, tuple[int, int]] = {}

    def passing(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; stores a CRC of each probed sample."""
        begin = 0
        for batch in batches:
            end = begin + len(batch[1])
            self._crcs |= {probe: _crc(batch, probe - begin) for probe in self._probes if begin <= probe < end}
            begin = end
            yield batch

    def mismatch(self, source: Source) -> int | None:
        """The first probed index in whose place something else came, or nothing; None where all are as the source has them.

        A user's source may draw its images at random even for evaluation: then only its labels are compared.
        """
        for probe in self._probes:
            index = self._due[probe]
            once, again = (_crc(read_batch(source, torch.tensor([index]), "eval"), 0) for _ in range(2))
            served = self._crcs.get(probe)
            if served is None or served[0] != once[0] or (served[1] != once[1] == again[1]):
                return index
        return None


def _crc(batch: Batch, place: int) -> tuple[int, int]:
    """Of the label and of the image."""
    images, labels = batch
    return zlib.crc32(to_bytes(labels[place])), zlib.crc32(to_bytes(images[place]))
