"""Where batches come from, and what a step trains on."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data, Point
from hpcddp.data import Batch, TrainLoader
from hpcddp.worker.rendezvous import ProcessGroup
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
from hpcddp.worker.training.inputs import Normalize, OrderWatch, endless
from tests.worker import forked, given


def two_batches(group: ProcessGroup, point: Point) -> tuple[list[list[int]], bool]:
    """The labels of a rank's first two batches, and whether the images were the same object."""
    feed = make_feed(point, given.mnist(64), group)
    timer = StepTimer(HostClock())
    first, second = feed.next(timer), feed.next(timer)
    feed.close()
    return [first[1].tolist(), second[1].tolist()], first[0] is second[0]


def test_a_resident_batch_is_the_ranks_own(tmp_path: Path) -> None:
    labels = given.mnist(64).batch(torch.arange(8))[1].tolist()
    point = given.point(2, measure={"input": "synthetic"})
    for rank, (found, same) in enumerate(forked.in_group(tmp_path, 2, two_batches, point)):
        assert found == [labels[4 * rank : 4 * rank + 4]] * 2
        assert same


def test_io_reads_what_training_reads(tmp_path: Path) -> None:
    points = {what: given.point(2, measure={"input": what}) for what in ("full", "io")}
    full, io = (forked.in_group(tmp_path / what, 2, two_batches, point) for what, point in points.items())
    assert full == io
    assert not full[0][1]


def test_synthetic_images_have_the_real_shape_and_type() -> None:
    point = given.point(data=Data(name="bigmnist"), measure={"input": "synthetic"})
    source = training_source(given.job(Path("study"), point))
    images, labels = source.batch(torch.tensor([0, 1, 2]))
    assert (images.shape, images.dtype) == ((3, 1, 28, 28), torch.uint8)
    assert (labels.dtype, source.classes) == (torch.int64, 10)


def own_batch(group: ProcessGroup, point: Point) -> tuple[str, int]:
    feed = make_feed(point, training_source(given.job(Path("study"), point)), group)
    samples = len(feed.next(StepTimer(HostClock()))[1])
    return type(feed).__name__, samples


def test_a_users_own_data_give_the_batch(tmp_path: Path) -> None:
    own = Data(name="tests.worker.test_evaluate:tiny")
    point = given.point(data=own, batch_per_gpu=100, measure={"input": "synthetic"})
    assert forked.in_group(tmp_path, 1, own_batch, point) == [("ResidentFeed", 100)]


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
    """Two copies at the start, then one per step; both tensors of a batch are kept for the compute stream."""
    take(CopyAheadFeed(loader(), torch.device("cpu")), StepTimer(HostClock()), 2)
    assert order == ["copy", "copy", "wait", "keep", "keep", "copy", "wait", "keep", "keep"]


def test_batches_and_epochs_are_those_of_a_loader(order: list[str]) -> None:
    feed, plain = CopyAheadFeed(loader(), torch.device("cpu")), LoaderFeed(loader(), torch.device("cpu"))
    begun = []
    for steps in (STEPS_PER_EPOCH, STEPS_PER_EPOCH, 1):
        assert same(take(feed, StepTimer(HostClock()), steps), take(plain, StepTimer(HostClock()), steps))
        begun.append(feed.watch.epochs)
    assert begun == [1, 2, 3]


def test_it_is_a_ranks_share_of_what_is_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


class StuckLoader(TrainLoader):
    """What forgetting set_epoch does: every epoch in the order of the first."""

    def epoch(self, n: int, first_step: int = 0) -> Iterator[Batch]:
        return super().epoch(0 * n, first_step)


def watched(kind: type[TrainLoader], samples: int, batch_size: int, steps: int) -> OrderWatch:
    watch = OrderWatch()
    loader = kind(given.mnist(samples), batch_size=batch_size, rank=0, ranks=1, workers=0, seed=3, pin_memory=False)
    for _ in itertools.islice(endless(loader, watch), steps):
        pass
    return watch


@pytest.mark.parametrize("steps", [9, 12, 16, 17, 40])
def test_an_order_used_twice_is_noticed(steps: int) -> None:
    """From the first batches of the second epoch on (an epoch has 8 steps of 8 samples)."""
    assert watched(TrainLoader, 64, 8, steps).repeated is None
    assert watched(StuckLoader, 64, 8, steps).repeated == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("first_step", [0, 3, 8, 13])
def test_batches_from_any_step_on(first_step: int, workers: int) -> None:
    def labels(first: int) -> tuple[list[list[int]], OrderWatch]:
        watch = OrderWatch()
        loader = TrainLoader(given.mnist(64), batch_size=8, rank=0, ranks=1, workers=workers, seed=3, pin_memory=False)
        return [batch[1].tolist() for batch in itertools.islice(endless(loader, watch, first), 20 - first)], watch

    (full_epoch, _), (rest, watch) = labels(0), labels(first_step)
    assert rest == full_epoch[first_step:]
    assert (watch.epochs, watch.repeated) == (3, None)


def test_one_epoch_proves_nothing() -> None:
    """Nor do a few samples in common, which a small set may repeat by chance."""
    assert watched(StuckLoader, 64, 8, 8).repeated is None
    assert watched(StuckLoader, 64, 1, 64 + 7).repeated is None
    assert watched(StuckLoader, 64, 1, 64 + 8).repeated == 1


def test_data_that_are_all_alike_prove_nothing() -> None:
    """A user's own made-up data are often zeros: no order can be told, and no run is rejected for it."""
    watch = OrderWatch()
    for _ in range(2):
        watch.begin_epoch()
        for _ in range(8):
            watch.note((torch.zeros(4, 1, 2, 2), torch.zeros(4, dtype=torch.int64)))
    assert watch.repeated is None


def normalize(dtype: torch.dtype, *, channels_last: bool = False) -> Normalize:
    return Normalize((0.5, 0.5), (0.25, 0.5), dtype=dtype, device=torch.device("cpu"), channels_last=channels_last)


def test_pixels_are_normalised_per_channel() -> None:
    """(255 / 255 - 0.5) / 0.25 = 2 and (0 / 255 - 0.5) / 0.5 = -1."""
    images = torch.stack((torch.full((3, 3), 255), torch.zeros(3, 3))).to(torch.uint8).unsqueeze(0)
    pixels = normalize(torch.float64)(images)
    assert pixels.dtype == torch.float64
    assert set(pixels[0, 0].flatten().tolist()) == {2.0}
    assert set(pixels[0, 1].flatten().tolist()) == {-1.0}
    assert images.max() == 255  # the batch itself is left as it was


def test_floating_point_images_are_used_as_they_are() -> None:
    images = torch.rand(2, 2, 3, 3)
    assert torch.equal(normalize(torch.float64)(images), images.double())


def test_the_memory_layout_is_the_models() -> None:
    pixels = normalize(torch.float32, channels_last=True)(torch.zeros(2, 2, 3, 3, dtype=torch.uint8))
    assert pixels.is_contiguous(memory_format=torch.channels_last)
