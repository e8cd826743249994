"""Feeds: where a step's batch comes from, and which part of the step that costs.

From a loader, and copied to the GPU while the step before trains; from a data set that lies on the device; or made up. And how
much memory a rank's loader processes may fill with batches.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, Protocol

import torch

from hpcddp.core.catalog import dataset_facts
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.jobspec import JobSpec, data_root_as_given
from hpcddp.core.point import Point
from hpcddp.data import Batch, Source, TrainLoader, open_source
from hpcddp.data.in_memory import Places, ResidentData
from hpcddp.data.opening import SyntheticSource
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.telemetry.node import node_memory
from hpcddp.worker.timing.clock import Stamp
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.inputs import OrderWatch, endless, to_device

SHARED_MEMORY = "/dev/shm"
"""Batches travel through it; a process that finds it full is ended by a bus error."""

ROOM_SHARE = 0.5
"""Of what is free for a rank; the rest is for pinned copies, for what is read anew meanwhile, and for others."""


def loader_room_bytes(ranks_per_node: int, shared_memory: str = SHARED_MEMORY) -> int | None:
    """A rank's share of the memory that is free on its node, of what its job may have, and of what processes may share, whichever
    is least; None where none of these is known."""
    free = [size for size in (_node_bytes(), _job_bytes(), _shared_bytes(shared_memory)) if size is not None]
    return int(ROOM_SHARE * min(free)) // ranks_per_node if free else None


def _node_bytes() -> int | None:
    try:
        return node_memory().available
    except (OSError, KeyError, ValueError):
        return None


def _job_bytes() -> int | None:
    """What Slurm gave the job on each node; sbatch(1): in MiB."""
    found = os.environ.get("SLURM_MEM_PER_NODE", "")
    return int(found) * 2**20 if found.isdecimal() and int(found) else None


def _shared_bytes(folder: str) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None  # tmpfs without a limit says nought


class ResidentDataFeed:
    """Gathers each batch on the device when its step begins: nothing is copied but the samples' places.

    `places`: the loader of what Places has of the data set; the rank runs it itself.
    """

    def __init__(self, data: ResidentData, places: TrainLoader, first_step: int = 0) -> None:
        self.plan = places.plan
        self.watch = OrderWatch()
        self._places = endless(places, self.watch, first_step)
        self._data = data

    def next(self, timer: StepTimer) -> Batch:
        batch = self._data.batch(next(self._places))
        timer.mark("data_wait")
        return batch

    def close(self) -> None:
        self._places.close()


class _Copy(NamedTuple):
    batch: Batch
    begin: Stamp
    end: Stamp
    """Both in the copy stream."""


class CopyAheadFeed:
    """A loader's batches, each copied from pinned memory on a stream of its own, one step before it is trained on.

    `h2d_exposed` is what the compute stream still waits for, `h2d_hidden` the rest of the copy. `data_wait` is for the batch of
    the step after, but for an epoch's first: that is taken when its step begins, so that no epoch begins before its time.
    """

    def __init__(self, loader: TrainLoader, device: torch.device, first_step: int = 0) -> None:
        self.plan = loader.plan
        self.loader = loader
        self.watch = OrderWatch()
        self._batches = endless(loader, self.watch, first_step)
        self._device = device
        # Of the usual priority there are 32 in all, given out in turn (c10/cuda/CUDAStream.h), to callbacks of all-reduces, too:
        # a copy would wait for an exchange, and the end of an exchange be timed behind a copy.
        self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._taken = first_step
        self._ahead: _Copy | None = None

    def next(self, timer: StepTimer) -> Batch:
        copy = self._ahead or self._begin(timer)
        self._ahead = self._begin(timer) if self.plan.epoch_at(self._taken)[1] else None
        timer.mark("data_wait")
        compute = torch.cuda.current_stream(self._device)
        compute.wait_event(copy.end)
        for part in copy.batch:
            part.record_stream(compute)  # its memory came from the copy stream, which does not know when training is done with it
        timer.mark("h2d_exposed")
        timer.copied(copy.begin, copy.end)
        return copy.batch

    def close(self) -> None:
        self._batches.close()

    def _begin(self, timer: StepTimer) -> _Copy:
        batch = next(self._batches)
        self._taken += 1
        with torch.cuda.stream(self._stream):
            begin = timer.clock.stamp()
            batch = to_device(batch, self._device)
            return _Copy(batch, begin, timer.clock.stamp())


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
