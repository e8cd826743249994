"""Runs of neighbours by reads: cached or not, in order or not, and what is said where a file is cut short."""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.data import TrainLoader, sampling
from hpcddp.data.bigmnist import sharded_source
from hpcddp.data.bigmnist.manifest import Shard
from hpcddp.data.bigmnist.sharded_source import ShardedSource
from hpcddp.data.source import Batch

PER_SHARD, SHARDS = 400, 3


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardedSource:
    """1,200 samples in an order of runs of 19; image i has the bytes of i, and its label is i % 251."""
    monkeypatch.setattr(sampling, "MOST_BLOCKS_LOG2", 6)
    shards = [Shard(f"train-{number}", PER_SHARD) for number in range(SHARDS)]
    for number, shard in enumerate(shards):
        samples = torch.arange(number * PER_SHARD, (number + 1) * PER_SHARD)
        shard.images(tmp_path).write_bytes(b"".join(sample.to_bytes(4, "little") * 196 for sample in samples.tolist()))
        shard.labels(tmp_path).write_bytes(bytes((samples % 251).tolist()))
    return ShardedSource(tmp_path, shards)


def samples_in(batch: Batch) -> list[int]:
    """Which samples the batch holds, all their pixels and labels having been compared."""
    images, labels = batch
    numbers = images.view(len(labels), 784).view(torch.int32)
    assert bool((numbers == numbers[:, :1]).all())
    assert torch.equal(numbers[:, 0].long() % 251, labels)
    return numbers[:, 0].tolist()


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_has_each_sample_once_however_it_is_read(
    source: ShardedSource, monkeypatch: pytest.MonkeyPatch, cached: bool, workers: int
) -> None:
    """In the order of its steps, from the page cache or by threads, in the rank or in processes, from the middle, too."""
    if not cached:
        monkeypatch.setattr(sharded_source, "_NO_WAIT", 0)
    assert source.samples_ahead > 0
    loader = TrainLoader(source, batch_size=100, rank=0, ranks=1, workers=workers, seed=1, pin_memory=False)
    order = sampling.EpochOrder(1200, 1, 3).samples_at(torch.arange(1200)).tolist()
    left = loader.epoch(0)
    next(left)
    assert [sample for batch in loader.epoch(3) for sample in samples_in(batch)] == order
    assert [sample for batch in loader.epoch(3, 5) for sample in samples_in(batch)] == order[500:]


def test_runs_end_at_shards_and_may_have_any_length(source: ShardedSource) -> None:
    """Neighbours in two files are two reads; batches without long runs come from maps."""
    for indices in ([*range(390, 410), *range(795, 805), *range(20)], [7], [1199, 3, 3, 800, 401], list(range(1200))):
        assert samples_in(source.batch(torch.tensor(indices))) == indices


def test_a_file_cut_short_while_it_is_read_is_said(source: ShardedSource, tmp_path: Path) -> None:
    """By its name; nothing is made up."""
    file = tmp_path / "train-1.u8"
    file.write_bytes(file.read_bytes()[: 784 * 100])
    with pytest.raises(HpcddpError, match=r"train-1.u8 ends before byte 94,080: it was cut short"):
        source.batch(torch.arange(480, 520))


def test_labels_are_read_once_for_all_processes(source: ShardedSource, tmp_path: Path) -> None:
    """When the source is opened: 72 MB that each loader process would have of its own."""
    for file in tmp_path.glob("*.labels.u8"):
        file.unlink()
    loader = TrainLoader(source, batch_size=100, rank=0, ranks=1, workers=2, seed=1, pin_memory=False)
    assert sorted(sample for batch in loader.epoch(0) for sample in samples_in(batch)) == list(range(1200))


def test_labels_cut_short_are_said(source: ShardedSource, tmp_path: Path) -> None:
    """By their file's name, whenever that was; none is made up."""
    file = tmp_path / "train-1.labels.u8"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(HpcddpError, match=r"train-1.labels.u8 ends before byte 400: it was cut short"):
        ShardedSource(tmp_path, source._shards)


def test_what_was_read_from_is_closed_with_its_source(source: ShardedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads open a file at once; and no thread holds on to the memory of a batch that it has read."""
    monkeypatch.setattr(sharded_source, "_NO_WAIT", 0)
    monkeypatch.setattr(sharded_source, "READS_AT_ONCE", 1)
    first = source.batch(torch.arange(20))  # threads are there, and labels are read
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        again = ShardedSource(source._root, source._shards)
        again.batch(torch.arange(1200).view(3, 20, 20).transpose(0, 1).flatten())
    held = weakref.ref(again._reads)
    del first, again
    for _ in range(100):
        if held() is None:
            break
        time.sleep(0.01)
    assert held() is None
    assert len(os.listdir("/proc/self/fd")) <= before
