"""Data parallel training computes what one process would: by DDP and by hand, parameter by parameter, in float64."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.point import ByHand, Point
from hpcddp.data import TrainLoader
from hpcddp.data.source import TensorSource
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training import parallel
from hpcddp.worker.training.feeds import make_feed
from hpcddp.worker.training.inputs import Normalize
from hpcddp.worker.training.models import build_model
from hpcddp.worker.training.parallel import HandExchange
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given
from tests.worker.test_gates import small
from tests.worker.test_trainer import MICRO_BATCH

KINDS: tuple[ByHand, ...] = ("gather_scatter", "all_reduce")
TWO_CONVOLUTIONS = "tests.worker.test_parallel:two_convolutions"


def trained(group: ProcessGroup, point: Point, source: TensorSource, folder: Path) -> torch.Tensor:
    """All parameters after the point's steps, as one rank of several has them."""
    rank, workload = group.rank, point.workload
    trainer = make_trainer(workload, source, group.device, rank.rank)
    log = StepLog(StepTimer(HostClock()), folder, rank.rank, buckets=False)
    train(point, trainer, make_feed(point, source, group), log, group)
    return flat(trainer.module)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, relative to the largest parameter."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def train_ranks(folder: Path, ranks: int, source: TensorSource, **changes: Any) -> list[torch.Tensor]:
    """The parameters of each of `ranks` ranks after the point's steps."""
    point = given.point(ranks, precision="fp64", **changes)
    return forked.in_group(folder / f"{ranks}-{point.id}", ranks, trained, point, source, folder / f"{ranks}-{point.id}")


@pytest.mark.dear
def test_micro_batches_add_up(tmp_path: Path) -> None:
    source = given.mnist(60)
    full_batch, halves = (train_ranks(tmp_path, 2, source, batch_per_gpu=4, accumulate=parts) for parts in (1, 2))
    assert relative_difference(halves[0], full_batch[0]) < 1e-10


@pytest.mark.dear
def test_batchnorm_sees_a_ranks_own_samples(tmp_path: Path) -> None:
    source = given.mnist(32)
    by_rank = train_ranks(tmp_path, 2, source, warmup=0, steps=2, model=TWO_CONVOLUTIONS, batch_per_gpu=2)
    (split,) = forked.values(tmp_path / "split", 1, train_split_in_two, source)
    assert relative_difference(by_rank[0], split) < 1e-10


def train_split_in_two(source: TensorSource) -> torch.Tensor:
    """Two steps in plain torch: no DDP, no trainer, no micro-batches of ours."""
    chosen, model = given.workload().optimizer, fresh(TWO_CONVOLUTIONS, 28)
    optimizer = torch.optim.SGD(model.parameters(), chosen.lr, momentum=chosen.momentum, weight_decay=chosen.weight_decay)
    kind: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu"), "channels_last": False}
    normalize = Normalize(source.mean, source.std, **kind)
    loader = TrainLoader(source, batch_size=4, rank=0, ranks=1, workers=0, seed=1, pin_memory=False)
    for _, (images, labels) in zip(range(2), loader.epoch(0), strict=False):
        optimizer.zero_grad()
        for half in (slice(0, 2), slice(2, 4)):
            loss = torch.nn.functional.cross_entropy(model(normalize(images[half])), labels[half])
            torch.autograd.backward(loss / 2)
        optimizer.step()
    return flat(model)


def fresh(name: str, height: int) -> torch.nn.Module:
    return build_model(name, classes=10, height=height, seed=1).double()


@pytest.mark.dear
def test_ranks_train_what_one_process_would(tmp_path: Path) -> None:
    """6 steps, over the end of an epoch: parameters are the same on all ranks, ==, and those of one with the global batch."""
    source = given.mnist(60)
    (single,) = train_ranks(tmp_path, 1, source, batch_per_gpu=12)
    for kind in ("ddp", *KINDS):
        by_rank = train_ranks(tmp_path, 3, source, batch_per_gpu=4, parallel=kind)
        assert all(torch.equal(parameters, by_rank[0]) for parameters in by_rank)
        assert relative_difference(by_rank[0], single) < 1e-10
        assert relative_difference(by_rank[0], flat(fresh("mnist-cnn", 28))) > 1e-3  # they did train


@pytest.mark.dear
@pytest.mark.parametrize("changes", [{"accumulate": 2}, {"channels_last": True}], ids=str)
def test_buffers_and_micro_batches_as_ddp_has_them(tmp_path: Path, changes: dict[str, Any]) -> None:
    ddp, *by_hand = (forked.in_group(tmp_path, 2, train_two_steps, {"parallel": kind, **changes}) for kind in ("ddp", *KINDS))
    assert float((ddp[0] - ddp[1]).abs().max()) > 1e-6, "without a broadcast buffers are the rank's own"
    for found in by_hand:
        assert all(relative_difference(*pair) < 1e-10 for pair in zip(found, ddp, strict=True))


def two_convolutions(classes: int) -> nn.Module:
    """BatchNorm, and weights that lie otherwise with channels_last."""
    torch.manual_seed(1)
    stem = (nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=3))
    return nn.Sequential(*stem, nn.Flatten(), nn.Linear(16, classes))


def train_two_steps(group: ProcessGroup, changes: dict[str, Any]) -> torch.Tensor:
    """Parameters and buffers of a rank after two steps."""
    source = given.mnist(16)
    workload = given.workload(model=TWO_CONVOLUTIONS, precision="fp64", **changes)
    trainer = make_trainer(workload, source, group.device, group.rank.rank)
    for step in range(2):
        first = 4 * (2 * step + group.rank.rank)
        trainer.step(source.batch(torch.arange(first, first + 4)), lambda _: None)
    return torch.cat([value.detach().double().flatten() for value in trainer.module.state_dict().values()])


def marks_and_exchanges(group: ProcessGroup, kind: ByHand, accumulate: int) -> tuple[list[str], int]:
    """The marks of a step, and how many gradients were exchanged in it."""
    source, marks, calls = given.mnist(4), list[str](), list[str]()
    trainer = make_trainer(given.workload(parallel=kind, accumulate=accumulate), source, group.device, group.rank.rank)
    assert trainer.hand_exchange
    average = trainer.hand_exchange._average

    def counted(gradient: torch.Tensor, ranks: int) -> None:
        calls.append(marks[-1])
        average(gradient, ranks)

    trainer.hand_exchange._average = counted
    trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), marks.append)
    assert set(calls) == {"backward"}
    return marks, len(calls)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_exchange_is_exposed_communication(tmp_path: Path, kind: ByHand, accumulate: int) -> None:
    for marks, exchanges in forked.in_group(tmp_path, 2, marks_and_exchanges, kind, accumulate):
        assert marks == [*(MICRO_BATCH * accumulate), "optimizer"]
        assert exchanges == len(list(fresh("mnist-cnn", 28).parameters()))


def its_own_gradient(kind: ByHand, rank: int) -> None:
    """A rank takes part in the exchange and trains on with its own gradients."""
    real = vars(parallel)[f"average_by_{kind}"]

    def average(gradient: torch.Tensor, ranks: int) -> None:
        own = gradient.clone()
        real(gradient, ranks)
        if rank == 1:
            gradient.copy_(own)

    vars(parallel)[f"average_by_{kind}"] = average


def no_exchange(_: ByHand, __: int) -> None:
    """No rank exchanges anything."""
    HandExchange.exchange = lambda self: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("kind", "plant"), [("gather_scatter", its_own_gradient), ("all_reduce", its_own_gradient), ("all_reduce", no_exchange)]
)
def test_gradients_that_do_not_arrive(tmp_path: Path, kind: ByHand, plant: Any) -> None:
    found = forked.ran(tmp_path, small(parallel=kind, model="mnist-cnn"), functools.partial(plant, kind)).failed
    assert list(found) == ["parameters agree"]
    assert "after step 1 1 of 2 ranks differ from rank 0" in found["parameters agree"]


def no_broadcast(_: int) -> None:
    """Every rank goes on with the statistics of its own samples."""
    HandExchange.forward = lambda self, images: self.module(images)  # type: ignore[method-assign]


@pytest.mark.parametrize("sound", [True, False])
def test_buffers_are_compared(tmp_path: Path, sound: bool) -> None:
    found = forked.ran(tmp_path, small(parallel="all_reduce", evaluate=True), None if sound else no_broadcast)
    assert found.gates["buffers agree"]["passed"] is sound
    assert list(found.failed) == ([] if sound else ["buffers agree"])


def test_one_process_needs_no_exchange(tmp_path: Path) -> None:
    (none,) = forked.in_group(tmp_path, 1, train_two_steps, {"parallel": "none"})
    for kind in KINDS:
        (by_hand,) = forked.in_group(tmp_path, 1, train_two_steps, {"parallel": kind})
        assert torch.equal(by_hand, none)
