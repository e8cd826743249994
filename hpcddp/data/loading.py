"""Loaders: a source's batches for one rank, read ahead by forked workers, or gathered into memory that is used again."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import UsageError
from hpcddp.core.text import thousands
from hpcddp.data.read_clock import ReadClock, TimedBatches
from hpcddp.data.sampling import EpochOrder, Share, eval_ranges, generator_for, train_indices
from hpcddp.data.source import Batch, DrawnSource, FactsSource, GatheredSource, Source, Wait, at_once, is_gathered, new_room

USUAL = 2
"""torch's own prefetch_factor. More smooths no more: a process that is behind stays behind."""

OWN_BYTES = 4
"""Of a number of a user's own source, which may give floating point; known sources give a byte."""

Place = tuple[int, int]
"""Epoch and step."""


class TrainLoader:
    """A source's training batches for one rank of `ranks`, reshuffled each epoch.

    Global batch k of an epoch holds the same samples whatever the number of ranks; rank r takes its r-th part. Samples
    that do not fill a global batch are dropped. The workers live as long as the loader; one epoch runs at a time. `room_bytes`:
    what batches that are read ahead may fill.
    """

    def __init__(  # noqa: PLR0913 - the contract with the worker
        self,
        source: Source,
        *,
        batch_size: int,
        rank: int,
        ranks: int,
        workers: int,
        seed: int,
        pin_memory: bool,
        grows_at: tuple[int, ...] = (),
        factor: int = 1,
        room_bytes: int | None = None,
    ) -> None:
        self.plan = EpochPlan(len(source), ranks * batch_size, grows_at, factor)
        largest = self.plan.largest_batch
        if len(source) < largest:
            grown = f", grown at epochs {', '.join(map(str, grows_at))}" if grows_at else ""
            raise UsageError(
                f"{thousands(len(source))} training samples do not fill one global batch of {thousands(largest)} "
                f"({ranks} x {largest // ranks}{grown}). Lower batch_per_gpu, or prepare more data."
            )
        self.clock = ReadClock(workers)
        self.prefetch = prefetch(workers, batch_bytes(source, largest // ranks), room_bytes)
        self._steps = _EpochSteps(self.plan)
        batches = _TrainBatches(source, self.plan, seed, rank, ranks)
        gathered = RankBatches(source, batches, pin_memory=pin_memory and not workers) if is_gathered(source) else None
        timed = TimedBatches(gathered or batches, self.clock)
        self._read: Iterable[Batch]
        if gathered and not workers:
            self._read = _Mapped(timed, self._steps)
        else:
            ahead = self.prefetch.batches
            self._read = data_loader(timed, self._steps, workers, (seed, rank), pin_memory=pin_memory, ahead=ahead)

    def epoch(self, n: int, first_step: int = 0) -> Iterator[Batch]:
        """The batches in the order of epoch `n`, as many as the plan says, from `first_step` on; no other epoch must have run."""
        self._steps.epoch, self._steps.first_step = n, first_step
        return self.clock.received(iter(self._read))


def eval_batches(  # noqa: PLR0913 - as TrainLoader
    source: Source, *, batch_size: int, rank: int, ranks: int, workers: int, room_bytes: int | None = None
) -> Iterator[Batch]:
    """This rank's batches of the evaluation split: over all ranks every sample once, so ranks may differ by a batch."""
    batches = _EvalBatches(source, eval_ranges(len(source), Share(batch_size, rank, ranks)))
    ahead = prefetch(workers, batch_bytes(source, batch_size), room_bytes).batches
    return iter(data_loader(batches, range(len(batches)), workers, ("eval", rank), ahead=ahead))


def read_batch(source: Source, indices: Tensor, draw: str) -> Batch:
    """The samples at `indices`, augmented by the seed `draw` where the source augments."""
    return source.drawn_batch(indices, draw) if isinstance(source, DrawnSource) else source.batch(indices)


class _EpochSteps(Iterable[Place]):
    """(epoch, step), all that travels to a loader process; iterated anew at the start of each epoch, in the rank itself."""

    def __init__(self, plan: EpochPlan) -> None:
        self._plan = plan
        self.epoch = 0
        self.first_step = 0

    def __iter__(self) -> Iterator[Place]:
        epoch = self.epoch
        return ((epoch, step) for step in range(self.first_step, self._plan.steps_of(epoch)))


class _Mapped(Iterable[Batch]):
    """Batches of all steps, each read when it is asked for."""

    def __init__(self, batches: TimedBatches, steps: _EpochSteps) -> None:
        self._batches = batches
        self._steps = steps

    def __iter__(self) -> Iterator[Batch]:
        return map(self._batches.__getitems__, self._steps)


INDICES_AT_ONCE = 1 << 15
"""Indices worked out in one go, for some steps ahead: of 512 alone, half the time would go into calls."""


class _TrainBatches(Dataset[Batch]):
    """A rank's batches by (epoch, step): the process that reads them works the indices out."""

    def __init__(self, source: Source, plan: EpochPlan, seed: int, rank: int, ranks: int) -> None:
        self._source = source
        self.plan = plan
        self._seed, self._rank, self._ranks = seed, rank, ranks
        self._ordered: tuple[int, EpochOrder] | None = None
        self._block: tuple[int, range, Sequence[Tensor]] = (0, range(0), ())

    def __getitems__(self, place: Place) -> Batch:
        """The DataLoader hands over what its batch sampler yields."""
        return read_batch(self._source, self.indices(place), f"{self._seed}/{place[0]}")

    def indices(self, place: Place) -> Tensor:
        epoch, step = place
        if self._block[0] != epoch or step not in self._block[1]:
            share = Share(self.plan.batch_of(epoch) // self._ranks, self._rank, self._ranks)
            end = min(step + max(1, INDICES_AT_ONCE // share.batch_size), self.plan.steps_of(epoch))
            steps = range(step, end)
            self._block = epoch, steps, train_indices(self._order(epoch), share, steps).unbind()
        return self._block[2][step - self._block[1].start]

    def _order(self, epoch: int) -> EpochOrder:
        """Of the epoch at hand, made when its first batch is read."""
        if self._ordered is None or self._ordered[0] != epoch:
            self._ordered = None  # the last epoch's goes before the next one's comes
            self._ordered = epoch, EpochOrder(self.plan.samples, self._seed, epoch)
        return self._ordered[1]


class _EvalBatches(Dataset[Batch]):
    """Batches of neighbouring samples, by number."""

    def __init__(self, source: Source, ranges: list[range]) -> None:
        self._source = source
        self._ranges = ranges

    def __len__(self) -> int:
        return len(self._ranges)

    def __getitems__(self, number: int) -> Batch:
        due = self._ranges[number]
        return read_batch(self._source, torch.arange(due.start, due.stop), "eval")


def data_loader(  # noqa: PLR0913 - the contract with torch
    batches: Dataset[Batch],
    parts: Iterable[object],
    workers: int,
    seeds: tuple[object, ...],
    *,
    pin_memory: bool = False,
    ahead: int = USUAL,
) -> DataLoader[Batch]:
    """Hands each of `parts` to the `__getitems__` of `batches`, in forked workers or, with none, in this process."""
    # Forked: no import of torch per worker, the source's memory is shared, and a user's module needs no import guard.
    forked: dict[str, Any] = {"multiprocessing_context": "fork", "persistent_workers": True, "prefetch_factor": ahead}
    return DataLoader(
        batches,
        batch_sampler=parts,  # type: ignore[arg-type]  # torch passes each item on as it is, a list or not
        collate_fn=_as_is,
        num_workers=workers,
        pin_memory=pin_memory,
        generator=generator_for("workers", *seeds),  # its own: the model's random numbers do not depend on the loader
        **(forked if workers else {}),
    )


def _as_is(batch: Any) -> Any:
    return batch


class RankBatches:
    """One call gathers a batch; where the source reads from a disk, those of the next steps are then on their way."""

    def __init__(self, source: GatheredSource, steps: _TrainBatches, *, pin_memory: bool) -> None:
        self._source = source
        self._steps = steps
        self._pin_memory = pin_memory
        self._memory = BatchMemory(source.shape)
        # Of one batch after the other, torch's allocator is as good, and takes less time.
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
        end = min(step + 1 + stride * math.ceil(self._source.samples_ahead / samples), self._steps.plan.steps_of(epoch))
        return [(epoch, later) for later in range(step + stride, end, stride)]


MOST_BUFFERS = 64
"""A reader that goes on holding its batches gets memory of its own for each one beyond."""

LABEL_BYTES = 8


class BatchMemory:
    """Buffers of one size. A tensor made of one refers to it, and so does whatever shares the tensor's memory."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self._shape = shape
        self._size_bytes = 0
        self._buffers: list[bytearray] = []

    def room(self, samples: int) -> Batch:
        """Images and labels, with whatever lies there."""
        pixels = math.prod(self._shape)
        buffer = self._buffer(samples * (pixels + LABEL_BYTES))
        labels = torch.frombuffer(buffer, dtype=torch.int64, count=samples)
        images = torch.frombuffer(buffer, dtype=torch.uint8, offset=samples * LABEL_BYTES)
        return images.view(samples, *self._shape), labels

    def _buffer(self, size_bytes: int) -> bytearray:
        if size_bytes != self._size_bytes:
            self._size_bytes, self._buffers = size_bytes, []
        for number in range(len(self._buffers)):
            if _references(self._buffers, number) == _UNUSED:
                return self._buffers[number]
        buffer = bytearray(size_bytes)
        if len(self._buffers) < MOST_BUFFERS:
            self._buffers.append(buffer)
        return buffer


def _references(buffers: list[bytearray], number: int) -> int:
    return sys.getrefcount(buffers[number])


_UNUSED = _references([bytearray(1)], 0)
"""Of a buffer that only the list refers to; versions of Python count differently."""


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
    return f"{thousands(size_bytes / 2**20, 1)} MiB" if size_bytes < 100 * 2**20 else f"{thousands(size_bytes / 2**20)} MiB"
