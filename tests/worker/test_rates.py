"""The learning rate of each step, against torch's own schedulers and against closed forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR, PolynomialLR, SequentialLR

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.optimizer import Optimizer
from hpcddp.core.point import Point
from hpcddp.worker.training.rates import RateSchedule, scaled_rate
from tests.worker import given

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
    """Of every step: cosine, polynomial and step, with and without a warm-up."""
    assert rates(**changes) == pytest.approx(torchs(make, warmup=warmup), rel=1e-9, abs=1e-12)


def test_the_warm_up_rises_to_the_rate_and_stays_there() -> None:
    """In equal steps, the last of which is the rate itself; half an epoch is rounded to whole steps."""
    found = rates(warmup_epochs=3.0)
    assert found[:WARMUP] == pytest.approx([PEAK * (step + 1) / WARMUP for step in range(WARMUP)])
    assert set(found[WARMUP:]) == {PEAK}
    assert rates(warmup_epochs=0.5)[:5] == pytest.approx([PEAK / 4, PEAK / 2, 3 * PEAK / 4, PEAK, PEAK])


@pytest.mark.parametrize(("scaling", "times"), [("none", 1.0), ("linear", 16.0), ("sqrt", 4.0)])
def test_scaling_rules(scaling: Any, times: float) -> None:
    """A batch 16 times as large: as it is, 16 times, 4 times; the rate peaks there, whatever the schedule."""
    chosen = Optimizer(lr=PEAK, scaling=scaling, base_batch=None if scaling == "none" else 64)
    assert scaled_rate(chosen, 1024) == pytest.approx(PEAK * times)
    assert scaled_rate(chosen, 64) == PEAK


def test_a_batch_that_grows_keeps_the_rate_and_a_scaled_rate_grows_with_it() -> None:
    """Twice the batch after four epochs: as it was, or twice the rate; a warm-up is over by then."""
    plan = EpochPlan(STEPS * 16, 16, (4,), 2)
    for changes, times in (({}, 1), ({"scaling": "linear", "base_batch": 16, "warmup_epochs": 3.0}, 2)):
        schedule = RateSchedule(training(batch_at_epochs=(4,), **changes), plan)
        assert [schedule.rate(step) for step in (4 * STEPS - 1, 4 * STEPS)] == [PEAK, times * PEAK]
        assert schedule.varies == (times > 1)


def test_nothing_changes_unasked() -> None:
    """The rate of every step is the one given, to the last bit, and nobody sets it."""
    schedule = RateSchedule(training(), given.plan(STEPS))
    assert not schedule.varies
    assert {schedule.rate(step) for step in range(EPOCHS * STEPS)} == {PEAK}
