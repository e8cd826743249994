"""bigMNIST's samples in the files that hold them: long runs of neighbours by reads, single samples by memory maps."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.data.bigmnist.manifest import IMAGE_BYTES, Shard
from hpcddp.data.bigmnist.shard_reads import QUEUE_DEPTH, READS_AT_ONCE, FileReads, Read, bytes_of
from hpcddp.data.sampling import run_length
from hpcddp.data.source import GatheredSource, Wait, at_once

LONG_RUN = 4
"""Neighbours from which on a read for each run (3 to 4 us where it is cached) is worth it. Maps are faster on single samples that
are cached, and read from a disk one page after the other."""


class ShardedSource(GatheredSource):
    """Samples spread over shards of equal length (the last may be shorter); images are opened by the process that reads."""

    def __init__(self, root: Path, shards: list[Shard]) -> None:
        super().__init__(MNIST)
        self._root = root
        self._shards = shards
        self._per_shard = shards[0].samples
        self._samples = sum(shard.samples for shard in shards)
        self._labels = _all_labels(root, shards)
        self._reads = FileReads([shard.images(root) for shard in shards])
        self._maps: dict[int, Tensor] = {}
        run = run_length(self._samples)
        self.samples_ahead = 2 * QUEUE_DEPTH * READS_AT_ONCE * run if run >= LONG_RUN else 0

    def __len__(self) -> int:
        return self._samples

    def gather(self, indices: Tensor, images: Tensor, labels: Tensor) -> Wait:
        """By a read for each run of neighbours in a shard, where these are long."""
        labels.copy_(self._labels.index_select(0, indices))
        breaks = (indices[1:] - indices[:-1] != 1) | (indices[1:] % self._per_shard == 0)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), breaks.nonzero().flatten() + 1])
        if len(starts) * LONG_RUN > len(indices):
            self._copy_from_maps(indices, images)
            return at_once
        return self._reads.begin(self._runs(indices[starts], starts, images), images)

    def _runs(self, firsts: Tensor, starts: Tensor, images: Tensor) -> list[Read]:
        """`firsts`: the first sample of each run; `starts`: its place in the batch."""
        room, places = bytes_of(images), [*(starts * IMAGE_BYTES).tolist(), len(images) * IMAGE_BYTES]
        shards, offsets = (firsts // self._per_shard).tolist(), (firsts % self._per_shard * IMAGE_BYTES).tolist()
        ends = itertools.pairwise(places)
        return [Read(shard, offset, room[a:b]) for shard, offset, (a, b) in zip(shards, offsets, ends, strict=True)]

    def _copy_from_maps(self, indices: Tensor, images: Tensor) -> None:
        """Sorted first, so that each shard is read once and forwards (2 million samples/s warm), then put back in order."""
        sorted_at, order = indices.sort()
        counts = torch.bincount(sorted_at // self._per_shard).tolist()
        within = torch.split(sorted_at % self._per_shard, [count for count in counts if count])
        maps = [self._map(number) for number, count in enumerate(counts) if count]
        rows = torch.cat([tensor.index_select(0, at) for tensor, at in zip(maps, within, strict=True)])
        torch.index_select(rows, 0, order.argsort(), out=images.flatten(1))

    def _map(self, number: int) -> Tensor:
        if number not in self._maps:
            shard = self._shards[number]
            self._maps[number] = map_rows(self._root, shard)
        return self._maps[number]


def _all_labels(root: Path, shards: list[Shard]) -> Tensor:
    """A byte each: 72 MB of the full set, in memory once for a rank and the loader processes that it forks."""
    labels = torch.empty(sum(shard.samples for shard in shards), dtype=torch.uint8)
    rooms = torch.split(labels, shards[0].samples)
    reads = [Read(number, 0, bytes_of(room)) for number, room in enumerate(rooms)]
    FileReads([shard.labels(root) for shard in shards]).read(reads)
    return labels


def map_rows(root: Path, shard: Shard) -> Tensor:
    """Its images, samples x 784."""
    return map_bytes(shard.images(root), shard.samples * IMAGE_BYTES).view(shard.samples, -1)


def map_bytes(path: Path, size: int) -> Tensor:
    """A private map: opened for reading, pages shared with every process that maps the file."""
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
