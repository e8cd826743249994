"""Feeds: where a step's batch comes from, and which part of the step that costs."""

from __future__ import annotations

import sys
from typing import Protocol

import torch

from hpcddp.core.catalog import dataset_facts
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.paths import data_root_as_given
from hpcddp.core.point import Point
from hpcddp.data import Batch, Source, TrainLoader, open_source
from hpcddp.data.opening import SyntheticSource
from hpcddp.data.resident import Places, ResidentData
from hpcddp.worker.loader_room import loader_room_bytes
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.copy_ahead import CopyAheadFeed
from hpcddp.worker.training.inputs import OrderWatch, endless, to_device
from hpcddp.worker.training.resident_feed import ResidentDataFeed


class Feed(Protocol):
    """A rank's batches, epoch after epoch without an end."""

    plan: EpochPlan
    watch: OrderWatch
    """Of the epochs begun."""

    def next(self, timer: StepTimer) -> Batch:
        """The next batch, on the device. Marks `data_wait` and `h2d_exposed`, each only where it happens."""
        ...

    def close(self) -> None:
        """No further batch will be taken."""
        ...


class LoaderFeed:
    """Batches of a loader, each copied to the device when its step begins."""

    def __init__(self, loader: TrainLoader, device: torch.device, first_step: int = 0) -> None:
        self.plan = loader.plan
        self.loader = loader
        self.watch = OrderWatch()
        self._batches = endless(loader, self.watch, first_step)
        self._device = device

    def next(self, timer: StepTimer) -> Batch:
        batch = next(self._batches)
        timer.mark("data_wait")
        batch = to_device(batch, self._device)
        timer.mark("h2d_exposed")
        return batch

    def close(self) -> None:
        self._batches.close()


class ResidentFeed:
    """One batch on the device, over and over: nothing is loaded, nothing is copied, no epoch begins."""

    def __init__(self, batch: Batch, plan: EpochPlan) -> None:
        self.plan = plan
        self.watch = OrderWatch()
        self._batch = batch

    def next(self, timer: StepTimer) -> Batch:
        return self._batch

    def close(self) -> None: ...


def training_source(spec: JobSpec) -> Source:
    """What the point trains on. `input: synthetic` reads no file of a known data set, and one batch of a user's own."""
    point = spec.point
    facts = dataset_facts(point.workload.data)
    if point.measure.input == "synthetic" and facts:
        return SyntheticSource(facts, "train")
    return open_source(point.workload.data, "train", data_root_as_given(spec))


def make_feed(point: Point, source: Source, group: ProcessGroup, first_step: int = 0) -> Feed:
    """The feed that `measure.input` asks for; its first batch is that of the run's step `first_step`."""
    if point.measure.input == "synthetic":
        plan = EpochPlan.of(point, max(len(source), point.global_batch))
        return ResidentFeed(first_batch(point, source, group), plan)
    if point.workload.data.resident:
        data = ResidentData(source, group.device)
        return ResidentDataFeed(data, _loader(point, Places(source), group), first_step)
    if point.workload.copy_ahead:
        return CopyAheadFeed(_loader(point, source, group), group.device, first_step)
    return LoaderFeed(_loader(point, source, group), group.device, first_step)


def loader_of(feed: Feed) -> TrainLoader | None:
    """None without one."""
    return feed.loader if isinstance(feed, (LoaderFeed, CopyAheadFeed)) else None


def first_batch(point: Point, source: Source, group: ProcessGroup) -> Batch:
    """The rank's share of the source's first samples, on the device."""
    samples = point.global_batch // point.ranks
    first = group.rank.rank * samples
    batch = source.batch(torch.arange(first, first + samples) % len(source))
    return to_device(batch, group.device)


def _loader(point: Point, source: Source, group: ProcessGroup) -> TrainLoader:
    loader = TrainLoader(
        source,
        batch_size=point.global_batch // point.ranks,
        rank=group.rank.rank,
        ranks=group.rank.world,
        workers=point.workload.loader_workers,
        seed=point.workload.seed,
        pin_memory=group.device.type == "cuda",
        grows_at=point.workload.optimizer.batch_at_epochs,
        factor=point.workload.optimizer.batch_factor,
        room_bytes=loader_room_bytes(group.rank.ranks_per_node) if point.workload.loader_workers else None,
    )
    if loader.prefetch.cut and group.rank.local_rank == 0:
        print(f"hpcddp: {loader.prefetch.cut}", file=sys.stderr, flush=True)
    return loader
