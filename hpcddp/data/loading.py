"""Loaders: a source's batches for one rank, read ahead by forked workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import UsageError
from hpcddp.data.sampling import EpochOrder, Share, eval_parts, generator_for, train_batches
from hpcddp.data.source import Batch, DrawnSource, Source

BatchSpec = tuple[str, list[int]]
"""What to read for one batch: the text that seeds random augmentation, and the indices."""


class TrainLoader:
    """A source's training batches for one rank of `ranks`, reshuffled each epoch.

    Global batch k of an epoch holds the same samples whatever the number of ranks; rank r takes its r-th part. Samples
    that do not fill a global batch are dropped. The workers live as long as the loader; one epoch runs at a time.
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
    ) -> None:
        self.plan = EpochPlan(len(source), ranks * batch_size, grows_at, factor)
        largest = self.plan.largest_batch
        if len(source) < largest:
            grown = f", grown at epochs {', '.join(map(str, grows_at))}" if grows_at else ""
            raise UsageError(
                f"{len(source):,} training samples do not fill one global batch of {largest:,} "
                f"({ranks} x {largest // ranks}{grown}): lower batch_per_gpu or prepare more data"
            )
        self._parts = _EpochParts(self.plan, seed, rank, ranks)
        self._loader = data_loader(_Batches(source), self._parts, workers, (seed, rank), pin_memory=pin_memory)

    def epoch(self, n: int, first_step: int = 0) -> Iterator[Batch]:
        """The batches in the order of epoch `n`, as many as the plan says, from `first_step` on; no other epoch must have run."""
        self._parts.epoch, self._parts.first_step = n, first_step
        return iter(self._loader)


def eval_batches(source: Source, *, batch_size: int, rank: int, ranks: int, workers: int) -> Iterator[Batch]:
    """This rank's batches of the evaluation split: over all ranks every sample once, so ranks may differ by a batch."""
    parts = [("eval", indices) for indices in eval_parts(len(source), Share(batch_size, rank, ranks))]
    return iter(data_loader(_Batches(source), parts, workers, ("eval", rank)))


def read_batch(source: Source, part: BatchSpec) -> Batch:
    """The samples of `part`, augmented by its seed where the source augments."""
    draw, indices = part
    return source.drawn_batch(indices, draw) if isinstance(source, DrawnSource) else source.batch(indices)


class _EpochParts(Iterable[BatchSpec]):
    """Iterated anew by the DataLoader at the start of each epoch, in the rank's own process."""

    def __init__(self, plan: EpochPlan, seed: int, rank: int, ranks: int) -> None:
        self._plan = plan
        self._seed = seed
        self._rank, self._ranks = rank, ranks
        self.epoch = 0
        self.first_step = 0

    def __iter__(self) -> Iterator[BatchSpec]:
        plan, order = self._plan, EpochOrder(self._plan.samples, self._seed, self.epoch)
        share = Share(plan.batch_of(self.epoch) // self._ranks, self._rank, self._ranks)
        draw, steps = f"{self._seed}/{self.epoch}", range(self.first_step, plan.steps_of(self.epoch))
        return ((draw, indices) for indices in train_batches(order, share, steps))


class _Batches(Dataset[Batch]):
    """A source as the DataLoader wants it: `__getitems__` receives what the batch sampler yields, one Part."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitems__(self, part: BatchSpec) -> Batch:
        return read_batch(self._source, part)


def data_loader(
    batches: Dataset[Batch], parts: Iterable[BatchSpec], workers: int, seeds: tuple[object, ...], *, pin_memory: bool = False
) -> DataLoader[Batch]:
    """Hands each of `parts` to the `__getitems__` of `batches`, in forked workers or, with none, in this process."""
    # Forked: no import of torch per worker, the source's memory is shared, and a user's module needs no import guard.
    forked: dict[str, Any] = {"multiprocessing_context": "fork", "persistent_workers": True}
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
