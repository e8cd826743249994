"""Sharded training is DDP's training, whatever each rank holds; and sharded runs from start to end."""

from __future__ import annotations

import csv
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Fsdp, Optimizer
from hpcddp.data.source import TensorSource
from hpcddp.worker.checksums import NAME
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training import sharding
from hpcddp.worker.training import trainer as trainer_module
from hpcddp.worker.training.models import build_model
from hpcddp.worker.training.optimizers import make_optimizer
from hpcddp.worker.training.sharding import METHOD, Sharding, blocks, mark_exchanges, shard
from hpcddp.worker.training.trainer import Trainer, make_trainer
from tests.worker import forked, given
from tests.worker.forked import Ran, ran
from tests.worker.test_gates import small

TORCHVISION: Any = importlib.import_module("torchvision.models")
"""Imported once for all ranks."""

BATCH = 4
STEPS = 16
VIT = "tests.worker.test_sharding:tiny_vit"
FP64: dict[str, Any] = {"model": VIT, "precision": "fp64"}


def tiny_vit(classes: int) -> nn.Module:
    """An encoder block, a stem and a head, as vit_b_16 has them."""
    torch.manual_seed(1)
    small = {"image_size": 32, "patch_size": 16, "num_layers": 1, "num_heads": 2, "hidden_dim": 18, "mlp_dim": 23}
    vit = TORCHVISION.VisionTransformer(**small, num_classes=classes)
    nn.init.normal_(vit.heads.head.weight, std=0.1)  # torchvision's zeros would leave every block without a gradient at first
    built: nn.Module = vit
    return built


def with_batchnorm(classes: int) -> nn.Module:
    torch.manual_seed(1)
    block = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(nn.ModuleDict({"only": block})["only"], nn.Flatten(), nn.Linear(256, classes))


Function = Callable[[ProcessGroup, TensorSource, str, int], Any]
"""Of a rank, with a way of `parallel` and the ranks that hold a copy."""


def with_each(group: ProcessGroup, function: Function, *kinds: tuple[str, int]) -> list[Any]:
    return [function(group, given.cifar(64), *kind) for kind in kinds]


def in_two_ranks(folder: Path, function: Function) -> list[Any]:
    """What it gives in rank 0, and in rank 1, for DDP and for FSDP."""
    return forked.in_group(folder, 2, with_each, function, ("ddp", 2), ("fsdp", 2))


def trainer_of(group: ProcessGroup, source: TensorSource, parallel: str, shards: int, **changes: Any) -> Trainer:
    trainer = make_trainer(given.workload(parallel=parallel, **changes), source, group.device, group.rank.rank, shards=shards)
    trainer.model.train()
    return trainer


def train(group: ProcessGroup, source: TensorSource, parallel: str, shards: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All parameters after the first step, and the loss of each step, the mean over ranks."""
    trainer = trainer_of(group, source, parallel, shards, **FP64)
    losses = [trainer.step(batch_of(0, group, source), lambda _: None)]
    after_first = full(trainer.module)
    losses += [trainer.step(batch_of(step, group, source), lambda _: None) for step in range(1, STEPS)]
    mean = torch.stack(losses)
    dist.all_reduce(mean)
    return after_first, mean / group.rank.world


def batch_of(step: int, group: ProcessGroup, source: TensorSource) -> Any:
    first = BATCH * (step * group.rank.world + group.rank.rank)
    return source.batch(torch.tensor([(first + number) % len(source) for number in range(BATCH)]))


def full(module: nn.Module) -> torch.Tensor:
    values: list[Any] = [parameter.detach() for parameter in module.parameters()]
    return torch.cat([(value.full_tensor() if hasattr(value, "full_tensor") else value).double().flatten() for value in values])


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest, relative to the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.dear
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.soak), 4])
def test_sharded_training_is_ddps(tmp_path: Path, ranks: int) -> None:
    """But for the order of sums, which grows from step to step. FSDP shards over all ranks, HSDP has two copies."""
    of_kind = ("ddp", 1), ("fsdp", ranks), ("hsdp", ranks // 2)
    (first, curve), *others = forked.in_group(tmp_path, ranks, with_each, train, *of_kind)[-1]
    fresh = full(build_model(VIT, classes=10, height=32, seed=1).double())
    assert difference(first, fresh) > 1e-3, "it trains"
    assert float(curve[-1]) < 0.9 * float(curve[0]), "it learns"
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


def train_variants(group: ProcessGroup, source: TensorSource, parallel: str, shards: int) -> list[torch.Tensor]:
    found = []
    for changes in VARIANTS:
        trainer = trainer_of(group, source, parallel, shards, **{**FP64, **changes})
        for step in range(3):
            trainer.step(batch_of(step, group, source), lambda _: None)
        found.append(full(trainer.module))
    return found


@pytest.mark.dear
def test_what_a_step_may_have_is_ddps(tmp_path: Path) -> None:
    (ddp, fsdp), _ = in_two_ranks(tmp_path, train_variants)
    apart = [difference(*pair) for pair in zip(fsdp, ddp, strict=True)]
    assert max(apart) < 1e-10, apart


def average_after_steps(group: ProcessGroup, source: TensorSource, parallel: str, shards: int) -> list[torch.Tensor]:
    """The moving average as it is evaluated, and the parameters of the step after that."""
    trainer = trainer_of(group, source, parallel, shards, **FP64, optimizer=Optimizer(lr=0.05, ema_decay=0.9))
    for step in range(3):
        trainer.step(batch_of(step, group, source), lambda _: None)
    with trainer.evaluated(), torch.no_grad():
        averaged = full(trainer.module)
        trainer.module(trainer.normalize(source.batch(torch.tensor([0]))[0]))
        if trainer.sharding:
            trainer.sharding.reshard()
    trainer.step(batch_of(3, group, source), lambda _: None)
    return [averaged, full(trainer.module)]


@pytest.mark.dear
def test_an_average_of_shards(tmp_path: Path) -> None:
    (ddp, fsdp), _ = in_two_ranks(tmp_path, average_after_steps)
    assert difference(*ddp) > 1e-4
    assert all(difference(*pair) < 1e-10 for pair in zip(fsdp, ddp, strict=True))


def losses_in_bf16(group: ProcessGroup, source: TensorSource, parallel: str, shards: int) -> tuple[torch.Tensor, set[str]]:
    """Of ten steps, and the types that a rank holds its parameters in."""
    trainer = trainer_of(group, source, parallel, shards, model=VIT, precision="bf16")
    losses = torch.stack([trainer.step(batch_of(0, group, source), lambda _: None) for _ in range(10)])
    return losses, {str(parameter.dtype) for parameter in trainer.module.parameters()}


@pytest.mark.dear
def test_mixed_precision_is_near_autocasts(tmp_path: Path) -> None:
    ((ddp, _), (fsdp, held)), _ = in_two_ranks(tmp_path, losses_in_bf16)
    assert held == {"torch.float32"}
    assert 0 < difference(fsdp, ddp) < 0.02


def overflow_on_one_rank(group: ProcessGroup, source: TensorSource, parallel: str, shards: int) -> tuple[list[bool], float]:
    """Whether each of three steps changed anything, of which the second has an infinite gradient on rank 1; the scale then."""
    trainer = trainer_of(group, source, parallel, shards, model=VIT, precision="fp16")
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
    return changed, trainer.scaler.get_scale()


@pytest.mark.dear
def test_a_gradient_that_overflows_on_one_rank(tmp_path: Path) -> None:
    """No rank makes the step, and the scale is halved on all."""
    assert in_two_ranks(tmp_path, overflow_on_one_rank) == [[([True, False, True], 2.0**9)] * 2] * 2


@pytest.mark.parametrize(
    ("name", "height", "count"),
    [("mnist-cnn", 28, 4), ("resnet18", 224, 8), ("resnet50", 32, 16), ("vgg11", 224, 11), ("vit_b_16", 224, 13)],
)
def test_blocks(name: str, height: int, count: int) -> None:
    with torch.device("meta"):
        model = build_model(name, classes=1000 if height == 224 else 10, height=height, seed=1)
    found = list(blocks(model))
    assert len(found) == count
    inner = [id(each) for block in found for each in block.modules()]
    assert len(inner) == len(set(inner))


def test_a_torch_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "PLACES", ("torch.distributed.no_such_place",))
    with pytest.raises(HpcddpError, match=r"need torch 2.4 .*, but this is .* or set parallel to ddp"):
        shard(nn.Linear(2, 2), given.workload(parallel="fsdp"), torch.device("cpu"), 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Two ranks with BatchNorm, which evaluate 97 samples in 12 and 13 batches; HSDP on two nodes of two ranks."""
    points = {
        "ddp": small(evaluate=True),
        "fsdp": small(evaluate=True, parallel="fsdp"),
        "marked": small(parallel="fsdp", measure={"comm": "on"}),
        "hsdp": small(4, nodes=2, model="mnist-cnn", parallel="hsdp"),
    }
    return {name: ran(tmp_path_factory.mktemp(name), point) for name, point in points.items()}


@pytest.mark.dear
def test_a_sound_run_says_what_ranks_hold(runs: dict[str, Ran]) -> None:
    for found in runs.values():
        assert found.failed == {}
        assert set(found.read("launch.json")["gates"]) <= found.gates.keys()
    fsdp, hsdp = (runs[name].gates[NAME]["evidence"] for name in ("fsdp", "hsdp"))
    assert fsdp.startswith("2 rank(s) hold 2 shard(s), every shard was updated; SHA-256 of rank 0 at the start ")
    assert hsdp.startswith("4 rank(s) hold 2 shard(s), 2 copies of each agree, every shard was updated; ")


@pytest.mark.dear
def test_it_counts_what_ddp_counts(runs: dict[str, Ran]) -> None:
    ddp, fsdp = runs["ddp"].end, runs["fsdp"].end
    assert fsdp["evaluation"]["samples"] == 97
    assert fsdp["evaluation"] == pytest.approx(ddp["evaluation"], rel=1e-5)
    assert fsdp["flops_per_sample"] == ddp["flops_per_sample"]


@pytest.mark.dear
def test_a_training_is_ddps(tmp_path: Path) -> None:
    of_kind = []
    for parallel in ("ddp", "fsdp"):
        recipe = Optimizer(lr=0.05, ema_decay=0.9, schedule="cosine")
        point = small(parallel=parallel, work="train", model="mnist-cnn", measure={"epochs": 2}, optimizer=recipe)
        found = ran(tmp_path / parallel, point)
        assert found.failed == {}
        with (found.attempt / "epochs.csv").open() as file:
            of_kind.append([float(row[name]) for row in csv.DictReader(file) for name in row if not name.endswith("_ns")])
    assert of_kind[1] == pytest.approx(of_kind[0], rel=1e-5)


@pytest.mark.dear
def test_what_is_not_marked_is_unknown(runs: dict[str, Ran]) -> None:
    """Without `comm: on` nobody knows what of forward and backward was waiting: no row says that nothing was."""
    assert {row["comm_exposed_ns"] for row in runs["fsdp"].rows(0)} == {""}
    assert "sharded_exchange" not in runs["fsdp"].end


@pytest.mark.dear
def test_what_is_marked_adds_up(runs: dict[str, Ran]) -> None:
    found = runs["marked"].end["sharded_exchange"]
    assert found.pop("method") == METHOD
    assert min(found.values()) > 0
    timed = [row for rank in (0, 1) for row in runs["marked"].rows(rank) if not int(row["flags"]) & 1]
    exposed_s = sum(int(row["comm_exposed_ns"]) for row in timed) / len(timed) / 1e9
    assert sum(found.values()) == pytest.approx(exposed_s, rel=1e-9)


DELAY_S = 0.05

GATHER, SCATTER = ("all_gather_single", "all_gather_into_tensor"), ("reduce_scatter_single", "reduce_scatter_tensor")
"""What fully_shard calls: in newer torch, and before."""


def slow_collectives(group: ProcessGroup, source: TensorSource, first: str, shards: int) -> dict[str, float]:
    """Seconds of the parts of a step in which each gathering, or each scattering, is held up: the least of five, since what else
    runs only adds to them."""
    steps, names = list[dict[str, float]](), next(names for names in (GATHER, SCATTER) if first in names)
    trainer = trainer_of(group, source, "fsdp", shards, **FP64)
    slow = next(name for name in names if hasattr(dist, name))
    real, last = getattr(dist, slow), [0.0]

    def delayed(*arguments: Any, **options: Any) -> Any:
        time.sleep(DELAY_S)
        return real(*arguments, **options)

    def mark(part: str) -> None:
        now = time.perf_counter()
        steps[-1][part] = steps[-1].get(part, 0.0) + now - last[0]
        last[0] = now

    assert trainer.sharding
    trainer.step(batch_of(0, group, source), lambda _: None)
    mark_exchanges(trainer.sharding, mark)
    setattr(dist, slow, delayed)
    for step in range(5):
        steps.append({})
        last[0] = time.perf_counter()
        trainer.step(batch_of(step, group, source), mark)
    setattr(dist, slow, real)
    return {part: min(parts[part] for parts in steps) for part in steps[0]}


@pytest.mark.timed
def test_delays_lie_in_their_parts(tmp_path: Path) -> None:
    held_up = [(names[0], 2) for names in (GATHER, SCATTER)]
    gathering, scattering = forked.in_group(tmp_path, 2, with_each, slow_collectives, *held_up)[0]
    assert gathering["all_gather_forward"] == pytest.approx(3 * DELAY_S, abs=0.5 * DELAY_S)
    assert gathering["all_gather_backward"] == pytest.approx(2 * DELAY_S, abs=0.5 * DELAY_S)
    assert scattering["reduce_scatter"] == pytest.approx(3 * DELAY_S, abs=0.5 * DELAY_S)
    for parts, slow in ((gathering, {"all_gather_forward", "all_gather_backward"}), (scattering, {"reduce_scatter"})):
        assert max(seconds for part, seconds in parts.items() if part not in slow) < 0.5 * DELAY_S, parts


@pytest.mark.dear
def test_forwards_without_gradients_are_not_marked() -> None:
    marks: list[str] = []
    module = torch.nn.Linear(2, 2)
    mark_exchanges(Sharding(module, [module]), marks.append)
    with torch.no_grad():
        module(torch.zeros(1, 2))
    assert marks == []
    module(torch.zeros(1, 2))
    assert marks == ["forward", "all_gather_forward"]


def stale(rank: int) -> None:
    """The optimizer of rank 1 was made of other tensors than those the model uses."""
    real = make_optimizer

    def make(chosen: Any, module: torch.nn.Module) -> torch.optim.Optimizer:
        copy = torch.nn.ParameterList([torch.nn.Parameter(each.detach().clone()) for each in module.parameters()])
        return real(chosen, copy if rank == 1 else module)

    vars(trainer_module)["make_optimizer"] = make


@pytest.mark.dear
def test_a_shard_that_is_not_updated(tmp_path: Path) -> None:
    found = ran(tmp_path, small(parallel="fsdp", model="mnist-cnn"), stale).failed
    assert list(found) == [NAME]
    assert "1 of 2 shards are unchanged since at the start, such as that of rank 1" in found[NAME]


def no_all_reduce(_: int) -> None:
    """Copies average nothing with each other: each node trains for itself."""
    vars(dist)["all_reduce"] = lambda *arguments, **options: None


@pytest.mark.dear
def test_copies_that_drift_apart(tmp_path: Path) -> None:
    found = ran(tmp_path, small(4, nodes=2, model="mnist-cnn", parallel="hsdp"), no_all_reduce).failed
    assert "after step 1 2 of 4 ranks differ from the first copy of their shard: rank 2 has" in found[NAME]
