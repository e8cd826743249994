"""Where batches come from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.point import Data, Point
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import make_feed, training_source
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
