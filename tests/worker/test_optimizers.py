"""Optimizers, label smoothing, what is decayed and the average of parameters: each does what its name says.

The learning rate of each step, against torch's own schedulers and against closed forms.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR, PolynomialLR, SequentialLR

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Optimizer, Point
from hpcddp.worker.training.optimizers import RateSchedule, make_optimizer, scaled_rate, set_rate
from hpcddp.worker.training.trainer import Trainer, WeightAverage, make_trainer
from tests.worker import given

RATE, DECAY = 0.1, 0.01


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).double()


def after_one_step(chosen: Optimizer) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    module, draw = model(), torch.Generator().manual_seed(4)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer = make_optimizer(chosen, module)
    gradients = []
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        gradients.append(parameter.grad.clone())
    optimizer.step()
    return before, [parameter.detach() for parameter in module.parameters()], gradients


def test_sgd_is_todays_unless_nesterov_is_asked_for() -> None:
    """One step with momentum: the gradient itself, or 1 + momentum times it (the first step's velocity is the gradient)."""
    for nesterov, times in ((False, 1.0), (True, 1.9)):
        before, after, gradients = after_one_step(Optimizer(lr=RATE, momentum=0.9, nesterov=nesterov))
        for old, new, gradient in zip(before, after, gradients, strict=True):
            torch.testing.assert_close(new, old - RATE * times * gradient)


def test_adamw_is_torchs() -> None:
    """Its first step has the length of the rate in every parameter, besides the decay; betas and eps are passed on."""
    before, after, gradients = after_one_step(Optimizer(name="adamw", lr=RATE, weight_decay=DECAY, betas=(0.8, 0.9), eps=1e-12))
    for old, new, gradient in zip(before, after, gradients, strict=True):
        torch.testing.assert_close(new, old * (1 - RATE * DECAY) - RATE * gradient.sign(), rtol=1e-6, atol=1e-6)
    optimizer = make_optimizer(Optimizer(name="adamw", betas=(0.8, 0.9), eps=1e-3), model())
    assert (optimizer.param_groups[0]["betas"], optimizer.param_groups[0]["eps"]) == ((0.8, 0.9), 1e-3)


def test_lars_adapts_matrices_and_no_vectors() -> None:
    """You et al. (2017): a matrix moves by trust x its norm over that of its decayed gradient; a vector as by SGD, undecayed."""
    before, after, gradients = after_one_step(Optimizer(name="lars", lr=RATE, momentum=0.0, weight_decay=DECAY))
    for old, new, gradient in zip(before, after, gradients, strict=True):
        trust = 1e-3 * old.norm() / (gradient.norm() + DECAY * old.norm())
        update = trust * (gradient + DECAY * old) if old.ndim > 1 else gradient
        torch.testing.assert_close(new, old - RATE * update)


def test_lamb_scales_adams_step_to_the_parameters() -> None:
    """You et al. (2019), algorithm 2: along Adam's step and the decay, as long as rate x the parameters' norm."""
    chosen = Optimizer(name="lamb", lr=RATE, weight_decay=DECAY, betas=(0.9, 0.99))
    for old, new, gradient in zip(*after_one_step(chosen), strict=True):
        if old.norm():
            update = 0.1 / math.sqrt(0.01) * gradient.sign() + DECAY * old
            torch.testing.assert_close(new, old - RATE * old.norm() * update / update.norm(), rtol=1e-4, atol=1e-4)
            assert float((new - old).norm()) == pytest.approx(RATE * float(old.norm()), rel=1e-5)


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(HpcddpError, match=r"name is lamb, .*pip install pytorch-optimizer\), or use sgd or adamw"):
        make_optimizer(Optimizer(name="lamb"), model())


@pytest.mark.parametrize("name", ["sgd", "adamw", "lamb"])
def test_biases_and_norm_layers_may_be_left_out_of_the_decay(name: Any) -> None:
    module = model()
    optimizer = make_optimizer(Optimizer(name=name, lr=RATE, weight_decay=DECAY, weight_decay_on="weights"), module)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    moved = [not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True)]
    assert moved == [parameter.ndim > 1 for parameter in module.parameters()]
    set_rate(optimizer, 0.7)
    assert {group["lr"] for group in optimizer.param_groups} == {0.7}


def trainer(**changes: Any) -> Trainer:
    chosen = given.workload(parallel="none", precision="fp64", optimizer=Optimizer(lr=RATE, **changes))
    return make_trainer(chosen, given.mnist(8), torch.device("cpu"), 0)


def test_label_smoothing_is_in_the_loss_that_is_trained() -> None:
    """A share of the mean over all classes' losses, as Szegedy et al. (2015) have it."""
    batch = given.mnist(8).batch(torch.arange(8))
    smooth, plain = (trainer(label_smoothing=share) for share in (0.1, 0.0))
    with torch.no_grad():
        scores = plain.module(plain.normalize(batch[0]))
    each = -nn.functional.log_softmax(scores, 1)
    due = 0.9 * nn.functional.cross_entropy(scores, batch[1]) + 0.1 * each.mean()
    assert float(smooth.step(batch, lambda _: None)) == pytest.approx(float(due), rel=1e-9)


def test_the_average_follows_the_parameters() -> None:
    """By hand: n steps, each moving it by 1 - decay, or by 9 / (10 + n) while that is more; afterwards the model is as it was."""
    parameter, decay = nn.Linear(1, 1, bias=False), 0.8
    average = WeightAverage(parameter, decay)
    due = parameter.weight.item()
    for step in range(60):
        with torch.no_grad():
            parameter.weight += 1
        due += max(1 - decay, 9 / (10 + step)) * (parameter.weight.item() - due)
        average.update()
    own = parameter.weight.detach().clone()
    with average.in_place():
        assert parameter.weight.item() == pytest.approx(due, rel=1e-5)
    assert torch.equal(parameter.weight, own)


def test_each_step_moves_the_average() -> None:
    first, second = trainer(ema_decay=0.9), trainer(ema_decay=0.9)
    assert first.average
    assert second.average
    for _ in range(3):
        first.step(given.mnist(8).batch(torch.arange(8)), lambda _: None)
    second.average.restore(first.average.state())
    with first.average.in_place(), second.average.in_place():
        both = zip(first.module.parameters(), second.module.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in both)
    assert trainer().average is None


PEAK, STEPS, EPOCHS, WARMUP = 0.4, 7, 10, 21
"""Steps an epoch; the warm-up's are three epochs."""


def training(**changes: Any) -> Point:
    return given.point(work="train", optimizer=Optimizer(lr=PEAK, **changes), measure={"epochs": EPOCHS})


def rates(**changes: Any) -> list[float]:
    schedule = RateSchedule(training(**changes), given.plan(STEPS))
    return [schedule.rate(step) for step in range(EPOCHS * STEPS)]


def torchs(make: Any, *, warmup: int = 0) -> list[float]:
    """What a scheduler of torch gives, behind torch's linear warm-up."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler: LRScheduler = make(optimizer)
    if warmup:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
        rising = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
        scheduler = SequentialLR(optimizer, [rising, make(optimizer)], milestones=[warmup])
    found = []
    for _ in range(EPOCHS * STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


AFTER = EPOCHS * STEPS - WARMUP


@pytest.mark.parametrize(
    ("changes", "make", "warmup"),
    [
        ({"schedule": "cosine"}, lambda optimizer: CosineAnnealingLR(optimizer, EPOCHS * STEPS), 0),
        ({"schedule": "cosine", "warmup_epochs": 3.0}, lambda optimizer: CosineAnnealingLR(optimizer, AFTER), WARMUP),
        ({"schedule": "polynomial"}, lambda optimizer: PolynomialLR(optimizer, EPOCHS * STEPS, 2.0), 0),
        (
            {"schedule": "polynomial", "power": 0.9, "warmup_epochs": 3.0},
            lambda optimizer: PolynomialLR(optimizer, AFTER, 0.9),
            WARMUP,
        ),
        (
            {"schedule": "step", "decay_at_epochs": (2, 5), "decay_factor": 0.2},
            lambda optimizer: MultiStepLR(optimizer, [2 * STEPS, 5 * STEPS], 0.2),
            0,
        ),
    ],
)
def test_rates_are_torchs(changes: dict[str, Any], make: Any, warmup: int) -> None:
    assert rates(**changes) == pytest.approx(torchs(make, warmup=warmup), rel=1e-9, abs=1e-12)


def test_the_warm_up_rises_to_the_rate_and_stays_there() -> None:
    found = rates(warmup_epochs=3.0)
    assert found[:WARMUP] == pytest.approx([PEAK * (step + 1) / WARMUP for step in range(WARMUP)])
    assert set(found[WARMUP:]) == {PEAK}
    assert rates(warmup_epochs=0.5)[:5] == pytest.approx([PEAK / 4, PEAK / 2, 3 * PEAK / 4, PEAK, PEAK])


@pytest.mark.parametrize(("scaling", "times"), [("none", 1.0), ("linear", 16.0), ("sqrt", 4.0)])
def test_scaling_rules(scaling: Any, times: float) -> None:
    chosen = Optimizer(lr=PEAK, scaling=scaling, base_batch=None if scaling == "none" else 64)
    assert scaled_rate(chosen, 1024) == pytest.approx(PEAK * times)
    assert scaled_rate(chosen, 64) == PEAK


def test_a_batch_that_grows_keeps_the_rate_and_a_scaled_rate_grows_with_it() -> None:
    plan = EpochPlan(STEPS * 16, 16, (4,), 2)
    for changes, times in (({}, 1), ({"scaling": "linear", "base_batch": 16, "warmup_epochs": 3.0}, 2)):
        schedule = RateSchedule(training(batch_at_epochs=(4,), **changes), plan)
        assert [schedule.rate(step) for step in (4 * STEPS - 1, 4 * STEPS)] == [PEAK, times * PEAK]
        assert schedule.varies == (times > 1)
