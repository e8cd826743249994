"""Every setting of the loaders that a benchmark is to measure, one after the other, with the caches cold and then warm."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from hpcddp.core.data_bench_record import Cache, LoaderRate, StorageRate
from hpcddp.core.data_bench_request import DataBenchRequest
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.point import Data, Point
from hpcddp.data import Source
from hpcddp.data.batches.prefetch import USUAL
from hpcddp.data.sampling import EpochOrder
from hpcddp.worker.data_bench.agreement import all_greatest
from hpcddp.worker.data_bench.passes import Loaded, load_steps, pilot_steps, untimed_steps
from hpcddp.worker.data_bench.sources import BenchedData, open_data
from hpcddp.worker.data_bench.storage import drop_pages, storage_rate
from hpcddp.worker.rendezvous import ProcessGroup

CACHES: tuple[Cache, ...] = ("cold", "warm")

MOST_PASSES = 5
"""Of those with the cache warm, which are short where the storage is much slower than memory."""

NO_FASTER = 1.5
"""Reading again at less than this multiple: it was in memory the first time, or nothing holds it there."""


@dataclass(frozen=True, kw_only=True)
class Benched:
    """What all ranks found, alike."""

    samples: int
    bytes_per_sample: float | None
    storage: StorageRate | None
    rates: tuple[LoaderRate, ...]
    problems: tuple[str, ...]


def bench_data(group: ProcessGroup, point: Point, root: str | None, request: DataBenchRequest) -> Benched:
    """All ranks call it, and have the same problems: what cannot be opened is one."""
    rates, problems = list[LoaderRate](), list[str]()
    samples, bytes_per_sample, storage = 0, None, None
    for number, data in enumerate(request.data):
        try:
            opening = _opening(group, number, functools.partial(_Opening, data, root, point.workload.seed))
            opened = opening()
        except HpcddpError as error:
            problems.append(str(error))
            continue
        samples = samples or len(opened.training)
        if bytes_per_sample is None and opened.bytes_per_sample is not None:
            bytes_per_sample = opened.bytes_per_sample
            storage = storage_rate(group, opened.large_files, request.seconds) if opened.large_files else None
        del opened  # what it has mapped cannot be dropped
        for setting in _settings(group, point, data, opening, request):
            try:
                rates += setting.rates()
            except UsageError as error:  # the same on all ranks: a global batch is larger than the data set
                problems.append(str(error))
    return Benched(
        samples=samples,
        bytes_per_sample=bytes_per_sample,
        storage=storage,
        rates=tuple(rates),
        problems=(*dict.fromkeys(problems), *_problems(storage, rates)),
    )


def _opening(group: ProcessGroup, number: int, make: Callable[[], _Opening]) -> _Opening:
    """HpcddpError on all ranks where one of them, perhaps on another node, cannot open the data: none may wait for it."""
    opening, words = None, None
    try:
        opening = make()
        opening()
    except HpcddpError as error:
        words = str(error) if group.rank.rank == 0 else f"rank {group.rank.rank} on {group.rank.host}: {error}"
    said = group.gather(f"data bench opening {number}", words)
    refused = group.share(f"data bench refused {number}", next(filter(None, said), None))
    if refused or opening is None:
        raise HpcddpError(refused)
    return opening


def _settings(group: ProcessGroup, point: Point, data: Data, opening: _Opening, request: DataBenchRequest) -> Iterator[_Setting]:
    for batch in request.batch_per_gpu:
        for count in request.loader_workers_per_rank:
            changes = {"data": data, "batch_per_gpu": batch, "loader_workers_per_rank": count, "accumulate": 1}
            workload = replace(point.workload, **changes)  # type: ignore[arg-type]
            yield _Setting(group, replace(point, workload=workload), opening, request.seconds)


class _Opening:
    """Opens the data for each pass: what an earlier one has mapped cannot be dropped. Pictures are listed once."""

    def __init__(self, data: Data, root: str | None, seed: int) -> None:
        self._open = functools.partial(open_data, data, root, seed)
        self._opened = self._open() if data.name == "imagenet" else None

    def __call__(self) -> BenchedData:
        return self._opened or self._open()


@dataclass(frozen=True)
class _Setting:
    """One setting of the loaders."""

    group: ProcessGroup
    point: Point
    opening: Callable[[], BenchedData]
    seconds: float

    def rates(self) -> list[LoaderRate]:
        """With the cache cold, where samples lie on a disk, and warm."""
        data = self.opening()
        if data.bytes_per_sample is not None:
            self._drop(data, self._epoch(data.training))
        steps = pilot_steps(self.group, self.point, data.training, self.seconds)
        caches = CACHES if data.bytes_per_sample is not None else CACHES[1:]
        decoder = data.decoder
        del data  # what it has mapped cannot be dropped
        decoding = self._load("decoding", "warm", steps)
        return [self._rate(cache, steps, decoder, decoding) for cache in caches]

    def _rate(self, cache: Cache, steps: int, decoder: str | None, decoding: Loaded | None) -> LoaderRate:
        training, reading = self._load("training", cache, steps), self._load("reading", cache, steps)
        assert training is not None  # of every data set
        batch = self.point.global_batch
        return LoaderRate(
            loader_workers_per_rank=self.point.workload.loader_workers,
            batch_per_gpu=self.point.workload.batch_per_gpu,
            decoder=decoder,
            form=self.point.workload.data.form if self.point.workload.data.name == "bigmnist" else None,
            cache=cache,
            samples=training.steps * batch,
            samples_per_s=training.steps_per_s * batch,
            read_samples_per_s=reading.steps_per_s * batch if reading else None,
            decode_samples_per_s=decoding.steps_per_s * batch if decoding else None,
        )

    def _load(self, part: Literal["training", "reading", "decoding"], cache: Cache, steps: int) -> Loaded | None:
        """The first steps once, or with the cache warm again and again; None where the data have no such part."""
        data = self.opening()
        source: Source | None = getattr(data, part)
        if source is None:
            return None
        if cache == "cold":
            self._drop(data, steps)
        del data
        loaded = load_steps(self.group, self.point, source, steps)
        return loaded if cache == "cold" else self._longer(source, loaded)

    def _longer(self, source: Source, loaded: Loaded) -> Loaded:
        """Of samples that are in memory, so many that they take the time; only those that were read before are."""
        times = self.seconds / loaded.took_s
        if times <= 1:
            return loaded
        if loaded.steps + untimed_steps(self.point, self._epoch(source)) >= self._epoch(source):
            return load_steps(self.group, self.point, source, math.ceil(loaded.steps * times))
        more = [load_steps(self.group, self.point, source, loaded.steps) for _ in range(min(math.ceil(times), MOST_PASSES) - 1)]
        return Loaded(loaded.steps * (1 + len(more)), loaded.took_s + sum(each.took_s for each in more))

    def _epoch(self, source: Source) -> int:
        """Its steps."""
        return len(source) // self.point.global_batch

    def _drop(self, data: BenchedData, steps: int) -> None:
        """On every node the files of all ranks' samples: the ranks of other nodes may have read them there."""
        if self.group.rank.local_rank == 0:
            ahead = untimed_steps(self.point, self._epoch(data.training)) + USUAL * self.point.workload.loader_workers
            samples = min(len(data.training), (steps + ahead) * self.point.global_batch)
            order = EpochOrder(len(data.training), self.point.workload.seed, 0)
            drop_pages(data.files(order.samples_at(torch.arange(samples)).tolist() if data.folder else ()))
        all_greatest(self.group, 0.0)


def _problems(storage: StorageRate | None, rates: Sequence[LoaderRate]) -> Iterator[str]:
    """What makes the rates with the cache cold doubtful."""
    pairs = [
        *([(storage.bytes_per_s, storage.again_bytes_per_s)] if storage else []),
        *((cold, warm) for cold, warm in _read_twice(rates)),
    ]
    if pairs and not any(again >= NO_FASTER * first for first, again in pairs):
        yield (
            "files were read again no faster than with their pages dropped: the storage is no slower than the processes that "
            "read, the pages stayed in memory, or nothing holds them there; cold and warm are the same"
        )


def _read_twice(rates: Sequence[LoaderRate]) -> Iterator[tuple[float, float]]:
    """What was read with the cache cold and right after, of each setting of pictures."""
    cold, warm = ([rate for rate in rates if rate.cache == cache] for cache in CACHES)
    for first, again in zip(cold, warm, strict=False):
        if first.read_samples_per_s and again.read_samples_per_s:
            yield first.read_samples_per_s, again.read_samples_per_s
