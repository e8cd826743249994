"""Batches copied ahead are the loader's, in its order. tests/gpu/test_copy_ahead.py has them arrive on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hpcddp.data import Batch, TrainLoader
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.copy_ahead import CopyAheadFeed
from hpcddp.worker.training.feeds import Feed, LoaderFeed
from tests.worker import given

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
