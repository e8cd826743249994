"""Sharded training is DDP's training: the same losses and parameters, whatever each rank holds of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Fsdp, Optimizer
from hpcddp.data.source import TensorSource
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.training import sharding
from hpcddp.worker.training.models import build_model
from hpcddp.worker.training.sharding import blocks, shard
from hpcddp.worker.training.trainer import Trainer, make_trainer
from tests.worker import forked, given

BATCH = 4
STEPS = 100
VIT = "tests.worker.test_sharding:tiny_vit"
FP64: dict[str, Any] = {"model": VIT, "precision": "fp64"}


def tiny_vit(classes: int) -> nn.Module:
    """An encoder block, a stem and a head, as vit_b_16 has them."""
    torchvision: Any = importlib.import_module("torchvision.models")
    torch.manual_seed(1)
    vit = torchvision.VisionTransformer(
        image_size=32, patch_size=16, num_layers=1, num_heads=2, hidden_dim=18, mlp_dim=23, num_classes=classes
    )
    nn.init.normal_(vit.heads.head.weight, std=0.1)  # torchvision's zeros would leave every block without a gradient at first
    built: nn.Module = vit
    return built


def with_batchnorm(classes: int) -> nn.Module:
    torch.manual_seed(1)
    block = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(nn.ModuleDict({"only": block})["only"], nn.Flatten(), nn.Linear(256, classes))


def joined() -> tuple[ProcessGroup, TensorSource]:
    return join(this_rank("local"), "cpu"), given.cifar(64)


def trainer_of(group: ProcessGroup, source: TensorSource, shards: int, changes: dict[str, Any]) -> Trainer:
    trainer = make_trainer(given.workload(**changes), source, group.device, group.rank.rank, shards=shards)
    trainer.model.train()
    return trainer


def train(shards: int, changes: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """All parameters after the first step, and the loss of each of 100 steps, the mean over ranks."""
    group, source = joined()
    trainer = trainer_of(group, source, shards, changes)
    losses = [trainer.step(batch_of(0, group, source), lambda _: None)]
    after_first = full(trainer.module)
    losses += [trainer.step(batch_of(step, group, source), lambda _: None) for step in range(1, STEPS)]
    mean = torch.stack(losses)
    dist.all_reduce(mean)
    group.leave()
    return after_first, mean / group.rank.world


def batch_of(step: int, group: ProcessGroup, source: TensorSource) -> Any:
    first = BATCH * (step * group.rank.world + group.rank.rank)
    return source.batch(torch.tensor([(first + number) % len(source) for number in range(BATCH)]))


def full(module: nn.Module) -> torch.Tensor:
    """All parameters, gathered where they are sharded."""
    values: list[Any] = [parameter.detach() for parameter in module.parameters()]
    return torch.cat([(value.full_tensor() if hasattr(value, "full_tensor") else value).double().flatten() for value in values])


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest, relative to the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def kinds(ranks: int) -> list[tuple[str, int]]:
    """Ways of `parallel` with the ranks of a copy; with HSDP two copies."""
    return [("ddp", 1), ("fsdp", ranks), ("hsdp", ranks // 2)]


@pytest.mark.dear
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.soak), 4])
def test_sharded_training_is_ddps(tmp_path: Path, ranks: int) -> None:
    """In fp64 loss and parameters after one step are DDP's within 1e-10, and the losses of 100 steps but for the order of sums,
    which grows from step to step: none is 1e-6 off. FSDP shards over all ranks, HSDP has two copies."""
    of_kind = [("ddp", 1), ("fsdp", ranks), ("hsdp", ranks // 2)]
    (first, curve), *others = (
        forked.values(tmp_path / kind, ranks, train, shards, {**FP64, "parallel": kind})[-1] for kind, shards in of_kind
    )
    fresh = full(build_model(VIT, classes=10, height=32, seed=1).double())
    assert difference(first, fresh) > 1e-3, "it trains"
    assert float(curve[-1]) < 0.8 * float(curve[0]), "it learns"
    for own_first, own_curve in others:
        assert difference(own_first, first) < 1e-10
        assert difference(own_curve[:1], curve[:1]) < 1e-10
        assert difference(own_curve, curve) < 1e-6


VARIANTS: list[dict[str, Any]] = [
    {"accumulate": 2},
    {"fsdp": Fsdp(reshard_after_forward=False)},
    {"optimizer": Optimizer(name="adamw", lr=0.01, weight_decay=0.1, weight_decay_on="weights")},
    {"optimizer": Optimizer(lr=0.05, nesterov=True, label_smoothing=0.1)},
    {"model": "tests.worker.test_sharding:with_batchnorm"},
]


def train_variants(ranks: int, parallel: str) -> list[torch.Tensor]:
    """The parameters after three steps of each."""
    (group, source), found = joined(), []
    for changes in VARIANTS:
        trainer = trainer_of(group, source, ranks, {**FP64, **changes, "parallel": parallel})
        for step in range(3):
            trainer.step(batch_of(step, group, source), lambda _: None)
        found.append(full(trainer.module))
    group.leave()
    return found


@pytest.mark.dear
def test_what_a_step_may_have_is_ddps(tmp_path: Path) -> None:
    """Micro-batches, blocks that hold their parameters, AdamW with decay of weights alone, Nesterov, BatchNorm: as with DDP."""
    ddp, fsdp = (forked.values(tmp_path / kind, 2, train_variants, 2, kind)[0] for kind in ("ddp", "fsdp"))
    apart = [difference(*pair) for pair in zip(fsdp, ddp, strict=True)]
    assert max(apart) < 1e-10, apart


def average_after_steps(ranks: int, parallel: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The moving average as it is evaluated, and the parameters of the step after that."""
    group, source = joined()
    changes = {**FP64, "parallel": parallel, "optimizer": Optimizer(lr=0.05, ema_decay=0.9)}
    trainer = trainer_of(group, source, ranks, changes)
    for step in range(3):
        trainer.step(batch_of(step, group, source), lambda _: None)
    with trainer.evaluated(), torch.no_grad():
        averaged = full(trainer.module)
        trainer.module(trainer.normalize(source.batch(torch.tensor([0]))[0]))
        if trainer.sharding:
            trainer.sharding.reshard()
    trainer.step(batch_of(3, group, source), lambda _: None)
    found = full(trainer.module)
    group.leave()
    return averaged, found


@pytest.mark.dear
def test_an_average_of_shards(tmp_path: Path) -> None:
    """It is DDP's, and so is the step that comes after an evaluation with it."""
    ddp, fsdp = (forked.values(tmp_path / kind, 2, average_after_steps, 2, kind)[0] for kind in ("ddp", "fsdp"))
    assert difference(ddp[0], ddp[1]) > 1e-4
    assert all(difference(*pair) < 1e-10 for pair in zip(fsdp, ddp, strict=True))


def losses_of(precision: str, parallel: str) -> tuple[torch.Tensor, list[str]]:
    """Of ten steps, and the types that a rank holds its parameters in."""
    group, source = joined()
    trainer = trainer_of(group, source, 2, {"model": VIT, "precision": precision, "parallel": parallel})
    losses = torch.stack([trainer.step(batch_of(0, group, source), lambda _: None) for _ in range(10)])
    held = sorted({str(parameter.dtype) for parameter in trainer.module.parameters()})
    group.leave()
    return losses, held


@pytest.mark.dear
def test_mixed_precision_is_near_autocasts(tmp_path: Path) -> None:
    """With bf16 the losses of ten steps are within 2 % of DDP's under autocast; shards are held in fp32."""
    (ddp, _), (fsdp, held) = (forked.values(tmp_path / kind, 2, losses_of, "bf16", kind)[0] for kind in ("ddp", "fsdp"))
    assert held == ["torch.float32"]
    assert 0 < difference(fsdp, ddp) < 0.02


def overflow_on_one_rank(parallel: str) -> tuple[list[bool], float]:
    """Whether each of three steps changed anything, of which the second has an infinite gradient on rank 1; the scale then."""
    group, source = joined()
    trainer = trainer_of(group, source, 2, {"model": VIT, "precision": "fp16", "parallel": parallel})
    assert trainer.scaler
    trainer.scaler.load_state_dict({**trainer.scaler.state_dict(), "scale": 2.0**10})
    changed = []
    for step in range(3):
        images, labels = batch_of(step, group, source)
        before = full(trainer.module)
        if step == 1 and group.rank.rank == 1:
            images = images.float() * 1e6
        trainer.step((images, labels), lambda _: None)
        changed.append(not torch.equal(full(trainer.module), before))
    group.leave()
    return changed, trainer.scaler.get_scale()


@pytest.mark.dear
def test_a_gradient_that_overflows_on_one_rank(tmp_path: Path) -> None:
    """No rank makes the step, as with DDP, and the scale is halved on all."""
    for kind in ("ddp", "fsdp"):
        assert forked.values(tmp_path / kind, 2, overflow_on_one_rank, kind) == [([True, False, True], 2.0**9)] * 2


@pytest.mark.parametrize(
    ("name", "height", "count"),
    [("mnist-cnn", 28, 4), ("resnet18", 224, 8), ("resnet50", 32, 16), ("vgg11", 224, 11), ("vit_b_16", 224, 13)],
)
def test_blocks(name: str, height: int, count: int) -> None:
    """Encoder blocks and the head, residual blocks, layers with parameters; none lies in another."""
    with torch.device("meta"):
        model = build_model(name, classes=1000 if height == 224 else 10, height=height, seed=1)
    found = list(blocks(model))
    assert len(found) == count
    inner = [id(each) for block in found for each in block.modules()]
    assert len(inner) == len(set(inner))


def test_a_torch_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which torch has it."""
    monkeypatch.setattr(sharding, "PLACES", ("torch.distributed.no_such_place",))
    with pytest.raises(HpcddpError, match=r"came with torch 2.4: this is .* or set parallel to ddp"):
        shard(nn.Linear(2, 2), given.workload(parallel="fsdp"), torch.device("cpu"), 1)
