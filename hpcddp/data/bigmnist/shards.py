"""bigMNIST as it lies on disk, shards of raw bytes, and its samples read from there.

    bigmnist.json                            the manifest, renamed into place when everything else is there
    train-00000.u8  train-00000.labels.u8    images (784 bytes each) and labels (1 byte each), and so on
    eval.u8         eval.labels.u8           the evaluation digits, unaugmented

Training samples are laid out [copy][variant][digit]. Long runs of neighbours are read at positions, what the page cache holds at
once, the rest many at a time; single samples come from memory maps.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError
from hpcddp.core.schema import Positive, added_later
from hpcddp.core.text import thousands
from hpcddp.data.roots import decode_manifest
from hpcddp.data.sampling import run_length
from hpcddp.data.source import GatheredSource, Wait, at_once

MANIFEST = "bigmnist.json"
UNFINISHED = f"{MANIFEST}.part"
"""The manifest while shards are still being written."""
IMAGE_BYTES = math.prod(MNIST.shape)


@dataclass(frozen=True)
class Shard:
    """Two files of a split."""

    stem: str
    samples: int

    def images(self, root: Path) -> Path:
        return root / f"{self.stem}.u8"

    def labels(self, root: Path) -> Path:
        return root / f"{self.stem}.labels.u8"

    def sizes(self, root: Path) -> dict[Path, int]:
        """Of both files, in bytes."""
        return {self.labels(root): self.samples, self.images(root): self.samples * IMAGE_BYTES}

    def complete(self, root: Path) -> bool:
        return all(path.is_file() and path.stat().st_size == size for path, size in self.sizes(root).items())


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a folder of bigMNIST holds; with the digits, everything its bytes follow from."""

    schema: Literal[1] = 1
    copies: Positive
    variants: tuple[str, ...]
    base_samples: Positive
    """Digits every variant is made of: 60,000 with MNIST's own."""
    eval_samples: Positive
    samples_per_shard: Positive
    """In every training shard but the last, which may be shorter."""
    digits: str
    """Where the digits come from: mnist or sklearn."""
    digits_sha256: str
    seed: int
    shape: tuple[int, ...] = MNIST.shape
    sha256: Mapping[str, str] = added_later(dict)
    """Of each file, by its name; none in folders of earlier versions. Before all is there, of what is finished."""

    @property
    def samples(self) -> int:
        """Training samples: copies x variants x digits."""
        return self.copies * len(self.variants) * self.base_samples

    @property
    def train_shards(self) -> list[Shard]:
        per = self.samples_per_shard
        return [
            Shard(f"train-{number:05d}", min(per, self.samples - start))
            for number, start in enumerate(range(0, self.samples, per))
        ]

    @property
    def eval_shard(self) -> Shard:
        return Shard("eval", self.eval_samples)


def read_manifest(path: Path) -> Manifest:
    """UsageError where the file is not a manifest that this version reads."""
    return decode_manifest(Manifest, path, "delete it with the shards beside it, or choose another folder")


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


QUEUE_DEPTH = 64
"""Reads under way at a time in one process. Of 14 KB each, 64 gave a third of the sequential rate of a cloud disk, 32 a fifth."""

READS_AT_ONCE = 8
"""That a thread takes, to do one after the other: to be woken for each costs more than the read."""

_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)
"""preadv: only what the page cache has (Linux)."""


class Read(NamedTuple):
    """Bytes of a file, and where they go."""

    file: int
    """Its number."""
    offset: int
    room: memoryview


class FileReads:
    """Files that are read at positions; each is opened when it is first read from."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._descriptors: dict[int, int] = {}

    def __del__(self) -> None:
        """Nothing is under way any more: whoever reads refers to this."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def begin(self, reads: Sequence[Read], owner: Tensor) -> Wait:
        """Begins to fill the rooms, parts of the memory of `owner`, which lives until they are full.

        OSError or HpcddpError, here or from waiting, for a file that is missing or cut short.
        """
        cached = next((place for place, read in enumerate(reads) if not self._read_cached(read)), len(reads))
        slow = reads[cached:]  # some of them may be cached, too, which costs less than finding out
        if not slow:
            return at_once
        starts, queue = range(0, len(slow), READS_AT_ONCE), _threads()
        job = _Job(len(starts), owner)
        for start in starts:
            queue.put((self, slow[start : start + READS_AT_ONCE], job))
        return job.wait

    def read(self, reads: Sequence[Read]) -> None:
        """One after the other, waiting for the disk."""
        for number, offset, room in reads:
            count = os.preadv(self._descriptor(number), [room], offset)
            while count < len(room):
                more = os.preadv(self._descriptor(number), [room[count:]], offset + count)
                if not more:
                    raise HpcddpError(f"{self._paths[number]} ends before byte {thousands(offset + len(room))}: it is truncated")
                count += more

    def _read_cached(self, read: Read) -> bool:
        descriptor = self._descriptor(read.file)
        try:
            return bool(_NO_WAIT) and os.preadv(descriptor, [read.room], read.offset, _NO_WAIT) == len(read.room)
        except OSError:  # not in the page cache, or of a file system that cannot say
            return False

    def _descriptor(self, number: int) -> int:
        if number not in self._descriptors:
            descriptor = os.open(self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing beside what is asked for
            if self._descriptors.setdefault(number, descriptor) != descriptor:  # another thread was faster
                os.close(descriptor)
        return self._descriptors[number]


class _Job:
    """What threads do for one batch, counted down by them."""

    def __init__(self, parts: int, owner: Tensor) -> None:
        self._left = parts
        self._owner = owner
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._error: Exception | None = None

    def done(self, error: Exception | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if not self._left:
                self._over.set()

    def wait(self) -> None:
        self._over.wait()
        if self._error:
            raise self._error


_Queue = SimpleQueue[tuple[FileReads, Sequence[Read], _Job]]
_queues: dict[int, _Queue] = {}
"""Of this process; one that was forked has threads of its own."""


def _threads() -> _Queue:
    """What QUEUE_DEPTH threads take reads from; they are started when the first read has to wait."""
    queue = _queues.get(os.getpid())
    if queue is None:
        queue = _queues[os.getpid()] = SimpleQueue()
        for _ in range(QUEUE_DEPTH):
            threading.Thread(target=_serve, args=(queue,), daemon=True, name="shard-reads").start()
    return queue


def _serve(queue: _Queue) -> None:
    while True:
        files, reads, job = queue.get()
        try:
            files.read(reads)
        except Exception as error:
            job.done(error)
        else:
            job.done(None)
        del files, reads, job  # an idle thread holds no batch's memory, and no file


def bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's memory, to be written to; the tensor must outlive it, and be contiguous."""
    array = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return memoryview(array).cast("B")
