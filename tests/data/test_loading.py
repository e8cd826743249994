"""How many batches loader processes read ahead where memory is short."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import UsageError
from hpcddp.data import Batch, Source, TrainLoader, eval_batches
from hpcddp.data.batches.loading import MOST_BUFFERS, USUAL, BatchMemory, batch_bytes, prefetch
from hpcddp.data.crop_flip import CroppedSource
from hpcddp.data.source import TensorSource
from tests.worker import given


def numbered(samples: int) -> TensorSource:
    """Sample i has the label i."""
    return TensorSource(MNIST, torch.zeros(samples, *MNIST.shape, dtype=torch.uint8), torch.arange(samples))


def loader(source: Source, **changes: Any) -> TrainLoader:
    """One rank, batches of 5, no workers, unless said otherwise."""
    given: dict[str, Any] = {"batch_size": 5, "rank": 0, "ranks": 1, "workers": 0, "seed": 1, **changes}
    return TrainLoader(source, **given, pin_memory=False)


def labels(batches: Iterator[Batch]) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


def test_an_epoch_has_the_promised_steps_and_drops_the_rest() -> None:
    """23 samples in global batches of 5 are 4 steps; no sample twice."""
    loading = loader(numbered(23))
    batches = labels(loading.epoch(0))
    assert loading.plan.steps_of(0) == len(batches) == 4
    assert len({label for batch in batches for label in batch}) == 20


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_the_batches_of_a_single_rank(workers: int) -> None:
    """Two ranks of 5 get together, step by step, what one rank of 10 gets, with or without worker processes."""
    single = labels(loader(numbered(47), batch_size=10).epoch(3))
    halves = [labels(loader(numbered(47), rank=rank, ranks=2, workers=workers).epoch(3)) for rank in (0, 1)]
    assert [first + second for first, second in zip(*halves, strict=True)] == single


def test_an_epoch_is_the_same_whatever_ran_before_it() -> None:
    """Epoch 1 after an epoch that was left half-way is epoch 1 of a new loader: workers persist, orders do not."""
    used = loader(numbered(60), workers=1)
    left = used.epoch(0)
    next(left)
    assert labels(used.epoch(1)) == labels(loader(numbered(60)).epoch(1))
    assert labels(used.epoch(2)) != labels(used.epoch(1))


def test_too_little_data_for_one_global_batch_is_said() -> None:
    """The error names samples, global batch and its factors."""
    with pytest.raises(
        UsageError, match=r"19 training samples do not fill one global batch of 20 \(4 x 5\): lower batch_per_gpu"
    ):
        loader(numbered(19), ranks=4)


@pytest.mark.parametrize(("samples", "ranks"), [(23, 1), (23, 2), (23, 3), (23, 5), (3, 5)])
def test_evaluation_gives_every_sample_once(samples: int, ranks: int) -> None:
    """Over 1, 2, 3 and 5 ranks, and with fewer samples than ranks."""
    shares = [labels(eval_batches(numbered(samples), batch_size=4, rank=rank, ranks=ranks, workers=0)) for rank in range(ranks)]
    assert sorted(label for share in shares for batch in share for label in batch) == list(range(samples))


def test_evaluation_with_workers_gives_the_same_batches() -> None:
    """Worker processes change nothing."""
    shares = [labels(eval_batches(numbered(23), batch_size=4, rank=1, ranks=2, workers=workers)) for workers in (0, 2)]
    assert shares[0] == shares[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_leaves_the_models_random_numbers_alone(workers: int) -> None:
    """A training run draws the same numbers (dropout, say) whatever its loader does."""
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    labels(loader(numbered(20), workers=workers).epoch(0))
    assert torch.equal(torch.rand(3), expected)


class WhoReads(TensorSource):
    """Labels are the reading process's id."""

    def __init__(self) -> None:
        super().__init__(MNIST, torch.zeros(400, *MNIST.shape, dtype=torch.uint8), torch.zeros(400, dtype=torch.int64))

    def batch(self, indices: torch.Tensor) -> Batch:
        return super().batch(indices)[0], torch.full((len(indices),), os.getpid())


def test_workers_live_as_long_as_the_loader() -> None:
    """The second epoch is read by the processes of the first: no fork and no new maps between epochs."""
    loading = loader(WhoReads(), batch_size=50, workers=2)
    pids = [{label for batch in labels(loading.epoch(n)) for label in batch} for n in (0, 1)]
    assert len(pids[0]) == 2
    assert pids[0] == pids[1]


class Drawn(TensorSource):
    """Labels tell how often each (draw, index) was asked for with which words."""

    def drawn_batch(self, indices: torch.Tensor, draw: str) -> Batch:
        images, _ = self.batch(indices)
        return images, torch.tensor([hash_of(draw, index) for index in indices.tolist()])


def hash_of(draw: str, index: int) -> int:
    return int.from_bytes(f"{draw}:{index}".encode()[:7], "big")


def test_random_augmentation_is_told_seed_and_epoch() -> None:
    """What a sample's draws depend on is the seed, the epoch and the sample: not the rank, the batch or the worker."""
    plain = numbered(20)
    drawn = Drawn(MNIST, torch.zeros(20, *MNIST.shape, dtype=torch.uint8), torch.arange(20))
    for epoch in (0, 1):
        indices = labels(loader(plain, rank=1, ranks=2, seed=9).epoch(epoch))
        got = labels(loader(drawn, rank=1, ranks=2, seed=9).epoch(epoch))
        assert got == [[hash_of(f"9/{epoch}", index) for index in batch] for batch in indices]


def test_a_batch_grows_between_epochs() -> None:
    """Two epochs of batches of 5, then of 10, of the same samples as a loader of that batch has then, on every rank."""
    grown = [loader(numbered(33), rank=rank, ranks=1 + rank, grows_at=(2,), factor=2) for rank in (0, 1)]
    for rank, each in enumerate(grown):
        large = loader(numbered(33), batch_size=10, rank=rank, ranks=1 + rank)
        small = loader(numbered(33), rank=rank, ranks=1 + rank)
        for epoch, like in ((0, small), (1, small), (2, large), (3, large)):
            labels, due = ([batch[1].tolist() for batch in of.epoch(epoch)] for of in (each, like))
            assert labels == due
    with pytest.raises(UsageError, match=r"do not fill one global batch of 40 \(2 x 20, grown at epochs 2, 4\)"):
        loader(numbered(33), ranks=2, grows_at=(2, 4), factor=2)


def test_memory_is_used_again_when_its_batch_is_gone() -> None:
    """The next batch lies where one lay that nothing refers to any more."""
    memory = BatchMemory((1, 28, 28))
    images, labels = memory.room(4)
    assert (images.shape, labels.shape, images.dtype, labels.dtype) == ((4, 1, 28, 28), (4,), torch.uint8, torch.int64)
    place = images.data_ptr()
    del images, labels
    assert memory.room(4)[0].data_ptr() == place


def test_memory_is_left_to_whoever_still_uses_a_part_of_it() -> None:
    """A view of some images, or the labels alone, hold all of it."""
    memory = BatchMemory((1, 28, 28))
    part, held = memory.room(4)[0][2:3, 0], memory.room(4)[1]
    part.fill_(1)
    held.fill_(2)
    for _ in range(3):
        for each in memory.room(4):
            each.fill_(9)
    assert bool((part == 1).all())
    assert held.tolist() == [2] * 4


def test_a_reader_may_hold_any_number_of_batches() -> None:
    """Each has memory of its own, and so has one of another size."""
    memory = BatchMemory((1, 2, 2))
    held = [memory.room(3)[1].fill_(number) for number in range(2 * MOST_BUFFERS)]
    memory.room(5)[1].fill_(-1)
    assert [int(labels[0]) for labels in held] == list(range(2 * MOST_BUFFERS))


MIB = 2**20


@pytest.mark.parametrize(
    ("workers", "room_mib", "ahead", "is_cut"),
    [(4, 90, 2, False), (4, 89, 1, True), (4, 50, 1, True), (4, 49, 1, True), (0, 1, 2, False), (4, None, 2, False)],
)
def test_as_many_as_fit(workers: int, room_mib: int | None, ahead: int, is_cut: bool) -> None:
    """Of 10 MiB each: two by each of four processes and the one that is trained on are 90 MiB; one each 50, and never none."""
    found = prefetch(workers, 10 * MIB, None if room_mib is None else room_mib * MIB)
    assert (found.batches, found.cut is not None) == (ahead, is_cut)


def test_what_was_cut_is_a_sentence() -> None:
    """With the sizes; and where not even one each may fit, what to lower."""
    cut, short = (prefetch(4, 10 * MIB, room * MIB).cut for room in (60, 40))
    assert cut == (
        "2 batches of 10.0 MiB read ahead by each of 4 loader processes would take 90.0 MiB, and a rank has 60.0 MiB of memory "
        "for them: each reads 1 ahead"
    )
    assert short is not None
    assert short.endswith("which may not fit either: lower workload.loader_workers_per_rank or batch_per_gpu")


def test_cropped_images_are_bytes_as_they_were() -> None:
    """A user's own may be floating point: four times as many."""
    images = given.cifar(8)
    assert batch_bytes(CroppedSource(images), 16) == batch_bytes(images, 16) == 16 * 3 * 32 * 32


def test_a_loader_reads_that_many_ahead_and_gives_the_same() -> None:
    """Of batches of 16 images of MNIST's shape: 12.25 KiB."""
    source = given.mnist(64)
    size = batch_bytes(source, 16)
    usual, cut = (
        TrainLoader(source, batch_size=16, rank=0, ranks=1, workers=2, seed=1, pin_memory=False, room_bytes=room)
        for room in (5 * size, 4 * size)
    )
    assert size == 16 * 28 * 28
    assert (usual.prefetch.batches, cut.prefetch.batches) == (USUAL, 1)
    for wanted, found in zip(usual.epoch(0), cut.epoch(0), strict=True):
        assert torch.equal(wanted[1], found[1])
