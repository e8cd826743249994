"""Where batches come from.

Batches copied ahead are the loader's, in its order. tests/gpu/test_copy_ahead.py has them arrive on a GPU.

The memory that a rank's loader processes may fill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data, Point
from hpcddp.data import Batch, TrainLoader
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import (
    ROOM_SHARE,
    CopyAheadFeed,
    Feed,
    LoaderFeed,
    loader_room_bytes,
    make_feed,
    training_source,
)
from tests.worker import forked, given


def with_input(point: Point, **changes: Any) -> Point:
    return dataclasses.replace(point, measure=dataclasses.replace(point.measure, **changes))


def two_batches(point: Point) -> tuple[list[list[int]], bool]:
    """The labels of a rank's first two batches, and whether the images were the same object."""
    group = join(this_rank("local"), "cpu")
    feed = make_feed(point, given.mnist(64), group)
    timer = StepTimer(HostClock())
    first, second = feed.next(timer), feed.next(timer)
    feed.close()
    group.leave()
    return [first[1].tolist(), second[1].tolist()], first[0] is second[0]


def test_a_resident_batch_is_the_ranks_own(tmp_path: Path) -> None:
    """Each rank has its share of the first samples, on the device, for all its steps."""
    labels = given.mnist(64).batch(torch.arange(8))[1].tolist()
    for rank, (found, same) in enumerate(forked.values(tmp_path, 2, two_batches, with_input(given.point(2), input="synthetic"))):
        assert found == [labels[4 * rank : 4 * rank + 4]] * 2
        assert same


def test_io_reads_what_training_reads(tmp_path: Path) -> None:
    """The same batches in the same order as with `full`: the loader's limit of this very run."""
    full, io = (forked.values(tmp_path / what, 2, two_batches, with_input(given.point(2), input=what)) for what in ("full", "io"))
    assert full == io
    assert not full[0][1]


def test_synthetic_images_have_the_real_shape_and_type() -> None:
    """Of a known data set, without its folder: MNIST's are 1 x 28 x 28 bytes."""
    point = with_input(given.point(data=Data(name="bigmnist")), input="synthetic")
    source = training_source(given.job(Path("study"), point))
    images, labels = source.batch(torch.tensor([0, 1, 2]))
    assert (images.shape, images.dtype) == ((3, 1, 28, 28), torch.uint8)
    assert (labels.dtype, source.classes) == (torch.int64, 10)


def own_batch(point: Point) -> tuple[str, int]:
    group = join(this_rank("local"), "cpu")
    feed = make_feed(point, training_source(given.job(Path("study"), point)), group)
    samples = len(feed.next(StepTimer(HostClock()))[1])
    group.leave()
    return type(feed).__name__, samples


def test_a_users_own_data_give_the_batch(tmp_path: Path) -> None:
    """Nobody else knows their shape; a batch larger than the data set's 64 samples takes some of them again."""
    own = Data(name="tests.worker.test_evaluate:tiny")
    point = with_input(given.point(data=own, batch_per_gpu=100), input="synthetic")
    assert forked.values(tmp_path, 1, own_batch, point) == [("ResidentFeed", 100)]


STEPS_PER_EPOCH = 4


def loader(samples: int = 16, **changes: Any) -> TrainLoader:
    options: dict[str, Any] = {"rank": 0, "ranks": 1, "workers": 0, "seed": 1, "pin_memory": False, **changes}
    return TrainLoader(given.mnist(samples), batch_size=samples // STEPS_PER_EPOCH, **options)


def take(feed: Feed, timer: StepTimer, steps: int, work: Callable[[Batch], None] = lambda _: None) -> list[Batch]:
    found = []
    for _ in range(steps):
        found.append(feed.next(timer))
        work(found[-1])
        timer.mark("forward")
        timer.close_step(0)
    return found


def same(ours: list[Batch], theirs: list[Batch]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(torch.equal(mine.cpu(), yours) for pair in pairs for mine, yours in zip(*pair, strict=True))


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CUDA's streams by their names only: what is asked of them, in this order. Nothing is copied anywhere."""
    calls: list[str] = []

    class Stream:
        def __init__(self, device: Any, priority: int = 0) -> None:
            self.priority = priority

        def wait_event(self, event: Any) -> None:
            calls.append("wait")

    @contextlib.contextmanager
    def within(stream: Stream) -> Iterator[None]:
        assert stream.priority < 0, "it may be any other's stream, too"
        calls.append("copy")
        yield

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda part, stream: calls.append("keep"))
    return calls


def test_the_next_batch_is_under_way_before_this_one_is_waited_for(order: list[str]) -> None:
    """Two copies at the start, then one per step; both tensors of a batch are kept for the compute stream.

    Copies are in a stream of higher priority: of the others NCCL and each callback of an all-reduce are given one in turn.
    """
    take(CopyAheadFeed(loader(), torch.device("cpu")), StepTimer(HostClock()), 2)
    assert order == ["copy", "copy", "wait", "keep", "keep", "copy", "wait", "keep", "keep"]


def test_batches_and_epochs_are_those_of_a_loader(order: list[str]) -> None:
    """Over two epochs and a step; the next epoch does not begin before its first batch is asked for."""
    feed, plain = CopyAheadFeed(loader(), torch.device("cpu")), LoaderFeed(loader(), torch.device("cpu"))
    begun = []
    for steps in (STEPS_PER_EPOCH, STEPS_PER_EPOCH, 1):
        assert same(take(feed, StepTimer(HostClock()), steps), take(plain, StepTimer(HostClock()), steps))
        begun.append(feed.watch.epochs)
    assert begun == [1, 2, 3]


def test_it_is_a_ranks_share_of_what_is_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of what Slurm gave the job: 8 MiB a node, half of it, for four ranks."""
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "8")
    assert loader_room_bytes(4, str(tmp_path)) == ROOM_SHARE * 8 * 2**20 / 4


def test_all_of_a_node_is_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--mem=0` gives the job all of it; Slurm then says 0, or nothing."""
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")
    without_limit = loader_room_bytes(1, str(tmp_path))
    assert without_limit is not None
    assert without_limit > 2**20
    assert loader_room_bytes(1, str(tmp_path / "none")) is not None


def test_shared_memory_without_a_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tmpfs that is mounted with size=0 has no blocks to say, and takes what the node has."""
    limited = loader_room_bytes(1, "/nowhere")
    empty = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda folder: empty)
    assert limited is not None
    assert (loader_room_bytes(1) or 0) > limited / 2
