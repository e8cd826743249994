"""Values that differ by rank outside parameters and buffers: a forward of the same batch shows them, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.worker import gates
from hpcddp.worker.forward_probe import VALUES, probe
from hpcddp.worker.main import run
from hpcddp.worker.rank_result import ForwardScores, RankScores
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given
from tests.worker.test_gates_planted import batchnorm, small, this_rank

GATE = "ranks compute the same"
MODULE = "tests.worker.test_forward_probe"


class Scaled(nn.Module):
    """A plain attribute takes part in what is computed: neither a parameter nor a buffer, so nobody compares or broadcasts it."""

    def __init__(self, classes: int, scale: float) -> None:
        super().__init__()
        self.layers, self.scale = batchnorm(classes), torch.tensor(scale)

    def forward(self, images: torch.Tensor) -> Any:
        return self.layers(images) * self.scale


def scaled_by_rank(classes: int) -> nn.Module:
    return Scaled(classes, 1.0 + 0.1 * this_rank())


def drifts(classes: int) -> nn.Module:
    """As above, from the fifth step on."""
    model, calls = Scaled(classes, 1.0), [0]

    def move(module: nn.Module, _: Any) -> None:
        calls[0] += module.training
        model.scale = torch.tensor(1.0 + 0.1 * this_rank() * (calls[0] > 4))

    model.register_forward_pre_hook(move)
    return model


def cannot_say(classes: int) -> nn.Module:
    """A model that will not be called in evaluation mode."""
    model = batchnorm(classes)

    def refuse(module: nn.Module, _: Any) -> None:
        if not module.training:
            raise ValueError("this model trains only\nand says so at length")

    model.register_forward_pre_hook(refuse)
    return model


def found_in(study: Path, own: str | None, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    """The gate, and the names of those that failed."""
    what = small(2, nodes=2, **changes, **({"model": f"{MODULE}:{own}"} if own else {}))
    spec = given.job(study, what)
    outcomes = forked.ranks(study / "output", 2, run, spec_to_dict(spec), nodes=2)
    assert {outcome.code for outcome in outcomes} == {0}, "\n".join(outcome.output for outcome in outcomes)
    found = {gate["name"]: gate for gate in json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())["gates"]}
    return found[GATE], [name for name, gate in found.items() if not gate["passed"]]


def test_an_attribute_that_differs_by_rank(tmp_path: Path) -> None:
    """Parameters, buffers and losses pass: every rank trains another model all the same."""
    found, failed = found_in(tmp_path, "scaled_by_rank")
    assert failed == [GATE]
    assert found["evidence"].startswith(
        "at the start rank 1 on node1 computes other scores than rank 0 from the same 2 pictures: "
    )
    assert "10 % apart, where 0.01 % may be rounding" in found["evidence"]


def test_an_attribute_that_drifts_apart(tmp_path: Path) -> None:
    """As seen at the end, when it was right at the start."""
    found, failed = found_in(tmp_path, "drifts")
    assert failed == [GATE]
    assert found["evidence"].startswith("at the end rank 1 on node1 computes other scores")


def test_a_model_that_cannot_be_compared(tmp_path: Path) -> None:
    """It trains; the gate says what was not compared, and why."""
    found, failed = found_in(tmp_path, "cannot_say")
    assert failed == []
    assert found["evidence"] == "not compared: on rank 0 the model gave ValueError: this model trains only"


@pytest.mark.dear
@pytest.mark.parametrize(
    "changes",
    [
        {"model": "mnist-cnn"},
        {"model": "resnet18", "data": Data(name="synthetic-cifar10")},
        {"precision": "bf16"},
        {"precision": "fp64", "channels_last": True},
        pytest.param({"model": "mnist-cnn", "compile": True}, marks=pytest.mark.soak),
    ],
)
def test_ranks_that_compute_the_same(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Dropout and BatchNorm differ by rank while they train, by design; no way to train makes the gate fire."""
    found, failed = found_in(tmp_path, None, **changes)
    assert failed == []
    assert found["evidence"].startswith("2 pictures at the start and at the end, scores at most 0 % apart on 2 ranks")


class Drawn(nn.Module):
    """Draws at random and counts in its buffers, in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm2d(1).eval()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> Any:
        self.calls += 1  # type: ignore[assignment, operator]
        return self.layers(self.frozen(images)) + torch.rand(())


def drawn(classes: int) -> nn.Module:
    return Drawn()


def test_nothing_is_changed() -> None:
    """Random numbers, buffers and each module's mode stay; what is drawn is the same on every rank and every time."""
    trainer = make_trainer(given.workload(model=f"{MODULE}:drawn", parallel="none"), given.mnist(8), torch.device("cpu"), 0)
    module: Any = trainer.module
    module.train()
    module.frozen.eval()
    random, before = torch.random.get_rng_state(), [buffer.clone() for buffer in trainer.module.buffers()]
    first = probe(trainer, (1, 28, 28)).values
    torch.rand(3)
    torch.random.set_rng_state(random)
    assert probe(trainer, (1, 28, 28)).values == first
    assert len(first) == VALUES
    assert torch.equal(random, torch.random.get_rng_state())
    assert all(torch.equal(one, other) for one, other in zip(before, trainer.module.buffers(), strict=True))
    assert [module.training, module.layers.training, module.frozen.training] == [True, True, False]


@pytest.mark.parametrize(
    ("precision", "apart", "passed"),
    [
        ("fp64", 1e-13, True),
        ("fp64", 1e-9, False),
        ("fp32", 5e-5, True),
        ("fp32", 2e-4, False),
        ("bf16", 0.02, True),
        ("bf16", 0.1, False),
    ],
)
def test_what_may_be_rounding(precision: str, apart: float, passed: bool) -> None:
    """By the digits that the arithmetic has; relative to the largest score, as small ones are differences of large numbers."""
    values = [[8.0, -2.0, 0.0], [8.0, -2.0, 8.0 * apart]]
    by_rank = [RankScores(host="a", forward={"at the start": ForwardScores(values=tuple(each))}) for each in values]
    assert gates.ranks_compute_the_same(by_rank, precision).passed is passed


@pytest.mark.parametrize(("theirs", "passed"), [([float("nan")] * 3, False), ([1.0, 2.0], False)])
def test_scores_of_another_kind(theirs: list[float], passed: bool) -> None:
    """No number, or another number of them."""
    by_rank = [
        RankScores(host="a", forward={"at the start": ForwardScores(values=tuple(each))}) for each in ([1.0, 2.0, 3.0], theirs)
    ]
    assert gates.ranks_compute_the_same(by_rank, "fp32").passed is passed
