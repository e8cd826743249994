"""A loader's times: what its processes compute, wait for a processor, and wait for storage, and the rate that comes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.data import Batch, TrainLoader
from hpcddp.data.batches.read_clock import ReadTimes
from hpcddp.data.source import TensorSource
from hpcddp.worker.rank_result import RankReads, loader_times, rank_reads

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


def read_all(source: TensorSource, workers: int) -> tuple[TrainLoader, ReadTimes]:
    loader = TrainLoader(source, batch_size=BATCH, rank=0, ranks=1, workers=workers, seed=1, pin_memory=False)
    for _ in loader.epoch(0):
        pass
    return loader, loader.clock.times()


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_is_counted_once_whoever_reads_it(workers: int) -> None:
    """In the rank, or over two processes."""
    _, found = read_all(Slow(80, computes=False), workers)
    assert (found.samples, found.batches) == (80, 10)


@pytest.mark.parametrize("workers", [0, 2])
def test_time_in_calls_is_parted_into_computing_and_waiting(workers: int) -> None:
    """What sleeps is neither on a processor nor waiting for one; what computes is on one."""
    waits, computes = (read_all(Slow(80, computes=computes), workers)[1] for computes in (False, True))
    assert waits.read_ns >= 10 * 20e6
    assert waits.compute_ns < 0.2 * waits.read_ns
    assert computes.compute_ns >= 10 * 20e6
    assert computes.read_ns >= computes.compute_ns
    assert computes.read_bytes < 4096 * 10
    assert waits.read_bytes < 4096 * 10
    storage_ns = waits.read_ns - waits.compute_ns - waits.processor_wait_ns
    assert storage_ns > 0.7 * 10 * 20e6


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_of_files_are_counted(tmp_path: Path, workers: int) -> None:
    """Ten batches, each of which reads a file of 100 kB."""
    (tmp_path / "file").write_bytes(bytes(100_000))

    class Reads(Slow):
        def batch(self, indices: Tensor) -> Batch:
            (tmp_path / "file").read_bytes()
            return super().batch(indices)

    loader, found = read_all(Reads(80, computes=False), workers)
    if not loader.clock.knows_bytes:
        pytest.skip("this kernel counts no bytes")
    assert 1_000_000 <= found.read_bytes < 1_100_000


def test_waiting_for_a_processor_is_not_waiting_for_storage() -> None:
    """Two processes on one processor: each computes half of its time, and waits for its share the rest."""
    loader = TrainLoader(Slow(160, computes=True), batch_size=BATCH, rank=0, ranks=1, workers=2, seed=1, pin_memory=False)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        for _ in loader.epoch(0):
            pass
    finally:
        os.sched_setaffinity(0, before)
    found = loader.clock.times()
    if not loader.clock.knows_processor_wait:
        pytest.skip("this kernel counts no wait for processors")
    assert found.processor_wait_ns > 0.6 * found.compute_ns
    assert found.read_ns - found.compute_ns - found.processor_wait_ns < 0.2 * found.read_ns


def test_only_what_comes_after_the_begin_counts() -> None:
    """Warm-up is left out; where nothing was read since, all counts."""
    loader = TrainLoader(Slow(80, computes=False), batch_size=BATCH, rank=0, ranks=1, workers=0, seed=1, pin_memory=False)
    batches = loader.epoch(0)
    for _ in range(4):
        next(batches)
    loader.clock.begin()
    assert loader.clock.times().batches == 4
    next(batches)
    assert loader.clock.times().batches == 1


def test_the_rate_is_what_processes_give_without_a_pause() -> None:
    """8 samples in 20 ms are 400 a second, of two processes 800, of two such ranks 1,600; each takes 133 a second."""
    loader = TrainLoader(Slow(160, computes=False), batch_size=BATCH, rank=0, ranks=1, workers=2, seed=1, pin_memory=False)
    for _ in loader.epoch(0):
        time.sleep(0.06)
    reads = rank_reads(loader)
    found = loader_times([reads, reads])
    assert found is not None
    assert 4 * 133 < found.samples_per_s <= 1600
    assert (found.workers, found.samples, found.batches) == (2, 320, 40)


def reads(**changes: Any) -> RankReads:
    """1,000 samples by two processes in 2 s of reading, 0.5 s of it at a processor, 0.5 s waiting for one."""
    times: dict[str, Any] = {
        "read_ns": 2_000_000_000,
        "compute_ns": 500_000_000,
        "processor_wait_ns": 500_000_000,
        "hand_over_ns": 0,
    }
    return RankReads(**{"workers": 2, "samples": 1000, "batches": 10, **times, "receive_ns": 0, **changes})


def test_the_rate_by_hand() -> None:
    """Two processes x 1,000 / 2 s; with 0.5 s of passing on 2,000 / 2.5 s; and no more than the rank can take: 1,000 / 2.5 s."""
    rates = {"hand_over_ns": 500_000_000}, {"receive_ns": 2_500_000_000}
    found = [loader_times([reads(**changes)]) for changes in ({}, *rates)]
    assert [each.samples_per_s for each in found if each] == [1000, 800, 400]
    assert found[0] is not None
    assert found[0].storage_wait_s == 1.0


def test_what_is_not_known_of_one_rank_is_not_known() -> None:
    """A kernel that counts no waits; a rank that read nothing."""
    found = loader_times([reads(), RankReads(**{**vars(reads()), "processor_wait_ns": None})])
    assert found is not None
    assert (found.processor_wait_s, found.storage_wait_s) == (None, None)
    assert loader_times([reads(), None]) is None
    assert loader_times([]) is None
