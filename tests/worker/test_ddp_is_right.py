"""Data parallel training computes what one process would: compared parameter by parameter, in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data, Optimizer, Point
from hpcddp.data import TrainLoader
from hpcddp.data.source import TensorSource
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import make_feed
from hpcddp.worker.training.inputs import Normalize
from hpcddp.worker.training.models import build_model
from hpcddp.worker.training.train import train
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given

pytestmark = pytest.mark.dear

RESNET: dict[str, Any] = {"model": "resnet18", "data": Data(name="synthetic-cifar10"), "batch_per_gpu": 2}


def trained(point: Point, source: TensorSource, folder: Path) -> torch.Tensor:
    """All parameters after the point's steps, as one rank of several has them."""
    group = join(this_rank("local"), "cpu")
    rank, workload = group.rank, point.workload
    trainer = make_trainer(workload, source, group.device, rank.rank)
    log = StepLog(StepTimer(HostClock()), folder, rank.rank, buckets=False)
    train(point, trainer, make_feed(point, source, group), log, group)
    group.leave()
    return flat(trainer.module)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, relative to the largest parameter."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def train_ranks(folder: Path, ranks: int, source: TensorSource, **changes: Any) -> list[torch.Tensor]:
    """The parameters of each of `ranks` ranks after the point's steps."""
    point = given.point(ranks, precision="fp64", **changes)
    return forked.values(folder / f"{ranks}-{point.id}", ranks, trained, point, source, folder / f"{ranks}-{point.id}")


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_what_one_process_would(tmp_path: Path, ranks: int) -> None:
    """N ranks of batch b give the parameters of one rank of batch N x b; 6 steps, over the end of an epoch."""
    source = given.mnist(60)
    (single,) = train_ranks(tmp_path, 1, source, batch_per_gpu=4 * ranks)
    by_rank = train_ranks(tmp_path, ranks, source, batch_per_gpu=4)
    assert all(torch.equal(parameters, by_rank[0]) for parameters in by_rank)
    assert relative_difference(by_rank[0], single) < 1e-10
    assert relative_difference(by_rank[0], flat(fresh("mnist-cnn", 28))) > 1e-3  # they did train


@pytest.mark.parametrize("ranks", [1, 2])
def test_micro_batches_add_up(tmp_path: Path, ranks: int) -> None:
    """Two micro-batches per step give the parameters of one, whose gradients are exchanged once."""
    source = given.mnist(60)
    full_batch, halves = (train_ranks(tmp_path, ranks, source, batch_per_gpu=4, accumulate=parts) for parts in (1, 2))
    assert relative_difference(halves[0], full_batch[0]) < 1e-10


def test_batchnorm_sees_a_ranks_own_samples(tmp_path: Path) -> None:
    """With BatchNorm, two ranks train what one process does that splits each batch in two and averages the gradients."""
    source = given.cifar(32)
    by_rank = train_ranks(tmp_path, 2, source, warmup=0, steps=2, **RESNET)
    (split,) = forked.values(tmp_path / "split", 1, train_split_in_two, source)
    assert relative_difference(by_rank[0], split) < 1e-10


def train_split_in_two(source: TensorSource) -> torch.Tensor:
    """Two steps in plain torch: no DDP, no trainer, no micro-batches of ours."""
    chosen = given.workload().optimizer
    model, normalize = fresh("resnet18", 32), normalize_for(source)
    optimizer = sgd(model, chosen)
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


def sgd(model: torch.nn.Module, chosen: Optimizer) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), chosen.lr, momentum=chosen.momentum, weight_decay=chosen.weight_decay)


def normalize_for(source: TensorSource) -> Callable[[torch.Tensor], torch.Tensor]:
    kind = functools.partial(Normalize, dtype=torch.float64, device=torch.device("cpu"), channels_last=False)
    return kind(source.mean, source.std)
