"""What loaders give and read ahead, and the times that their processes take for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import UsageError
from hpcddp.data import Batch, Source, TrainLoader, eval_batches
from hpcddp.data.in_memory import CroppedSource
from hpcddp.data.loading import MOST_BUFFERS, USUAL, BatchMemory, batch_bytes, prefetch
from hpcddp.data.source import TensorSource
from hpcddp.worker.rank_result import RankReads, loader_times, rank_reads
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
    loading = loader(numbered(23))
    batches = labels(loading.epoch(0))
    assert loading.plan.steps_of(0) == len(batches) == 4
    assert len({label for batch in batches for label in batch}) == 20


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_the_batches_of_a_single_rank(workers: int) -> None:
    single = labels(loader(numbered(47), batch_size=10).epoch(3))
    halves = [labels(loader(numbered(47), rank=rank, ranks=2, workers=workers).epoch(3)) for rank in (0, 1)]
    assert [first + second for first, second in zip(*halves, strict=True)] == single


def test_an_epoch_is_the_same_whatever_ran_before_it() -> None:
    used = loader(numbered(60), workers=1)
    left = used.epoch(0)
    next(left)
    assert labels(used.epoch(1)) == labels(loader(numbered(60)).epoch(1))
    assert labels(used.epoch(2)) != labels(used.epoch(1))


def test_too_little_data_for_one_global_batch_is_said() -> None:
    with pytest.raises(UsageError, match=r"19 training samples do not fill one global batch of 20 \(4 x 5\). Lower"):
        loader(numbered(19), ranks=4)


@pytest.mark.parametrize(("samples", "ranks", "workers"), [(23, 3, 0), (23, 2, 2), (3, 5, 0)])
def test_evaluation_gives_every_sample_once(samples: int, ranks: int, workers: int) -> None:
    batches = [eval_batches(numbered(samples), batch_size=4, rank=rank, ranks=ranks, workers=workers) for rank in range(ranks)]
    assert sorted(label for share in batches for batch in labels(share) for label in batch) == list(range(samples))


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_leaves_the_models_random_numbers_alone(workers: int) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    labels(loader(numbered(20), workers=workers).epoch(0))
    assert torch.equal(torch.rand(3), expected)


class WhoReads(TensorSource):
    """Labels are the reading process's id."""

    def batch(self, indices: torch.Tensor) -> Batch:
        return super().batch(indices)[0], torch.full((len(indices),), os.getpid())


def test_workers_live_as_long_as_the_loader() -> None:
    """The second epoch is read by the processes of the first: no fork and no new maps between epochs."""
    loading = loader(WhoReads(MNIST, *numbered(400).batch(torch.arange(400))), batch_size=50, workers=2)
    pids = [{label for batch in labels(loading.epoch(n)) for label in batch} for n in (0, 1)]
    assert len(pids[0]) == 2
    assert pids[0] == pids[1]


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
    cut, short = (prefetch(4, 10 * MIB, room * MIB).cut for room in (60, 40))
    assert cut == (
        "2 batches of 10.0 MiB read ahead by each of 4 loader processes would take 90.0 MiB, and a rank has 60.0 MiB of memory "
        "for them: each reads 1 ahead"
    )
    assert short is not None
    assert short.endswith("which may not fit either: lower workload.loader_workers_per_rank or batch_per_gpu")


def test_cropped_images_are_bytes_as_they_were() -> None:
    images = given.cifar(8)
    assert batch_bytes(CroppedSource(images), 16) == batch_bytes(images, 16) == 16 * 3 * 32 * 32


def test_a_loader_reads_that_many_ahead_and_gives_the_same() -> None:
    source = given.mnist(64)
    size = batch_bytes(source, 16)
    usual, cut = (loader(source, batch_size=16, workers=2, room_bytes=room) for room in (5 * size, 4 * size))
    assert size == 16 * 28 * 28
    assert (usual.prefetch.batches, cut.prefetch.batches) == (USUAL, 1)
    assert labels(usual.epoch(0)) == labels(cut.epoch(0))


BATCH = 8


class Slow(TensorSource):
    """Every batch takes 20 ms: of computing, or of waiting as for a file."""

    def __init__(self, samples: int, *, computes: bool) -> None:
        super().__init__(MNIST, torch.zeros(samples, *MNIST.shape, dtype=torch.uint8), torch.zeros(samples, dtype=torch.int64))
        self._computes = computes

    def batch(self, indices: Tensor) -> Batch:
        end = time.thread_time() + 0.02
        while self._computes and time.thread_time() < end:
            pass
        if not self._computes:
            time.sleep(0.02)
        return super().batch(indices)


def read_all(source: TensorSource, workers: int, pause_s: float = 0.0) -> TrainLoader:
    loading = loader(source, batch_size=BATCH, workers=workers)
    for _ in loading.epoch(0):
        time.sleep(pause_s)
    return loading


@pytest.mark.parametrize("workers", [0, 2])
def test_time_in_calls_is_parted_into_computing_and_waiting(workers: int) -> None:
    """What sleeps is neither on a processor nor waiting for one; what computes is on one. Samples count once whoever reads."""
    waits, computes = (read_all(Slow(80, computes=computes), workers).clock.times() for computes in (False, True))
    assert (waits.samples, waits.batches) == (80, 10)
    assert waits.read_ns >= 10 * 20e6
    assert waits.compute_ns < 0.2 * waits.read_ns
    assert computes.compute_ns >= 10 * 20e6
    assert computes.read_ns >= computes.compute_ns
    assert max(computes.read_bytes, waits.read_bytes) < 4096 * 10
    assert [each > 0 for each in (waits.hand_over_ns, waits.receive_ns)] == [workers > 0] * 2
    assert waits.read_ns - waits.compute_ns - waits.processor_wait_ns > 0.7 * 10 * 20e6


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_of_files_are_counted(tmp_path: Path, workers: int) -> None:
    (tmp_path / "file").write_bytes(bytes(100_000))

    class Reads(Slow):
        def batch(self, indices: Tensor) -> Batch:
            (tmp_path / "file").read_bytes()
            return super().batch(indices)

    clock = read_all(Reads(80, computes=False), workers).clock
    if not clock.knows_bytes:
        pytest.skip("this kernel counts no bytes")
    assert 1_000_000 <= clock.times().read_bytes < 1_100_000


def test_waiting_for_a_processor_is_not_waiting_for_storage() -> None:
    """Two processes on one processor: each computes half of its time, and waits for its share the rest."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        clock = read_all(Slow(160, computes=True), 2).clock
    finally:
        os.sched_setaffinity(0, before)
    if not clock.knows_processor_wait:
        pytest.skip("this kernel counts no wait for processors")
    found = clock.times()
    assert found.processor_wait_ns > 0.6 * found.compute_ns
    assert found.read_ns - found.compute_ns - found.processor_wait_ns < 0.2 * found.read_ns


def test_only_what_comes_after_the_begin_counts() -> None:
    """Warm-up is left out; where nothing was read since, all counts."""
    loading = loader(Slow(80, computes=False), batch_size=BATCH)
    batches = loading.epoch(0)
    for _ in range(4):
        next(batches)
    loading.clock.begin()
    assert loading.clock.times().batches == 4
    next(batches)
    assert loading.clock.times().batches == 1


def test_the_rate_is_what_processes_give_without_a_pause() -> None:
    """8 samples in 20 ms are 400 a second, of two processes 800, of two such ranks 1,600; each takes 133 a second."""
    of_rank = rank_reads(read_all(Slow(160, computes=False), 2, pause_s=0.06))
    found = loader_times([of_rank, of_rank])
    assert found is not None
    assert 4 * 133 < found.samples_per_s <= 1600
    assert (found.workers, found.samples, found.batches) == (2, 320, 40)


def reads(**changes: Any) -> RankReads:
    """1,000 samples by two processes in 2 s of reading, 0.5 s of it at a processor, 0.5 s waiting for one."""
    times = {"read_ns": 2_000_000_000, "compute_ns": 500_000_000, "processor_wait_ns": 500_000_000, "hand_over_ns": 0}
    return RankReads(**{"workers": 2, "samples": 1000, "batches": 10, **times, "receive_ns": 0, **changes})


def test_the_rate_by_hand() -> None:
    """Two processes x 1,000 / 2 s; with 0.5 s of passing on 2,000 / 2.5 s; and no more than the rank can take: 1,000 / 2.5 s."""
    cases = reads(), reads(hand_over_ns=500_000_000), reads(receive_ns=2_500_000_000)
    found = [loader_times([case]) for case in cases]
    assert [each and (each.samples_per_s, each.storage_wait_s) for each in found] == [(1000, 1.0), (800, 1.0), (400, 1.0)]


def test_what_is_not_known_of_one_rank_is_not_known() -> None:
    found = loader_times([reads(), reads(processor_wait_ns=None)])
    assert found is not None
    assert (found.processor_wait_s, found.storage_wait_s) == (None, None)
    assert loader_times([reads(), None]) is None
    assert loader_times([]) is None
