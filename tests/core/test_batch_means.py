"""How well a mean is known: by hand, and of series whose true mean is known, as stalls, spikes and bursts make them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from hpcddp.core.batch_means import MeanInterval, mean_interval, student_t

SERIES = 400


def autoregressive(phi: float, draw: random.Random) -> Iterator[float]:
    """100 ms with 5 % of noise, of which each step takes `phi` of the one before it."""
    value = draw.gauss(0, 1)
    while True:
        yield 100 + 5 * value
        value = phi * value + math.sqrt(1 - phi**2) * draw.gauss(0, 1)


def jittered(draw: random.Random) -> Iterator[float]:
    """Boundaries 2 % off where they belong: a step that ends late makes the next one short."""
    begin = draw.gauss(0, 2)
    while True:
        end = draw.gauss(0, 2)
        yield draw.gauss(100, 0.5) + end - begin
        begin = end


def stalling(every: int, longer: float, draw: random.Random) -> Iterator[float]:
    """Each `every`-th step lasts so much longer, from somewhere on; 100 ms in all."""
    step = draw.randrange(every)
    while True:
        yield draw.gauss(100 - longer / every, 2) + longer * (step % every == 0)
        step += 1


def spiky(share: float, longer: float, draw: random.Random) -> Iterator[float]:
    """Any step may last so much longer; 100 ms in the mean."""
    while True:
        yield draw.gauss(100 - share * longer, 2) + longer * (draw.random() < share)


def bursting(draw: random.Random) -> Iterator[float]:
    """Ten steps in sixty, on average in a row, last 30 ms longer; 100 ms in the mean."""
    slow = draw.random() < 1 / 6
    while True:
        yield draw.gauss(95, 3) + 30 * slow
        slow = draw.random() >= 0.1 if slow else draw.random() < 0.02


CASES: dict[str, tuple[Callable[[random.Random], Iterator[float]], int, float]] = {
    "AR(1) 0": (lambda draw: autoregressive(0.0, draw), 200, 0.93),
    "AR(1) 0.5": (lambda draw: autoregressive(0.5, draw), 200, 0.93),
    "AR(1) 0.9": (lambda draw: autoregressive(0.9, draw), 500, 0.93),
    "boundary jitter": (jittered, 200, 0.93),
    "every 4th step 200 ms longer": (lambda draw: stalling(4, 200, draw), 200, 0.93),
    "every 10th step 30 ms longer": (lambda draw: stalling(10, 30, draw), 200, 0.93),
    "spikes, 1 %": (lambda draw: spiky(0.01, 400, draw), 2000, 0.93),
    "bursts": (bursting, 2000, 0.93),
    # What comes less than a dozen times in a run is not known from it.
    "spikes, 0.3 %": (lambda draw: spiky(0.003, 400, draw), 2000, 0.90),
}
"""Series, steps, and in which share of them the interval holds the mean at least."""


def share_held(case: str, steps: int, of: int) -> float:
    """Share of so many series of the case whose interval holds 100 ms."""
    held = widths = 0.0
    for seed in range(of):
        series = CASES[case][0](random.Random(seed))
        found = mean_interval([next(series) for _ in range(steps)])
        assert found.half_width is not None
        held += abs(found.mean - 100) <= found.half_width
        widths += found.half_width
    print(f"{case}: {steps} steps, {100 * held / of:.1f} %, +-{widths / of:.2f} %")
    return held / of


@pytest.mark.parametrize("case", CASES)
def test_the_interval_holds_the_mean(case: str) -> None:
    _, steps, least = CASES[case]
    assert share_held(case, steps, SERIES) >= least


@pytest.mark.soak
@pytest.mark.parametrize("steps", [50, 200, 500, 2000])
@pytest.mark.parametrize("case", CASES)
def test_the_interval_holds_the_mean_of_more_series(case: str, steps: int) -> None:
    """Of 2000, the table in docs/method.md; series that are shorter than it takes are printed only."""
    _, enough, least = CASES[case]
    share = share_held(case, steps, 2000)
    assert share >= least or steps < enough


def test_independent_steps_have_the_interval_of_a_mean() -> None:
    """1.96 x 5 % / sqrt(2000), or up to a fifth more: of 20 batches Student's t, and chance correlations."""
    found = []
    for seed in range(100):
        series = autoregressive(0.0, random.Random(seed))
        found.append(mean_interval([next(series) for _ in range(2000)]).half_percent or 0.0)
    assert 1.0 <= sum(found) / len(found) / (1.96 * 5 / math.sqrt(2000)) <= 1.2


def test_by_hand() -> None:
    """20 batches of two, means 9, 11, 11, 9, ...: r = -1/20 + 1/20, squares of what they are off 20, Student's t of 19."""
    found = mean_interval([time for mean in [9, 11, 11, 9] * 5 for time in (mean - 1, mean + 1)])
    assert found.mean == 10
    assert found.half_width == pytest.approx(2.0930 * math.sqrt(1 / 19), rel=1e-4)
    assert found.effective_steps == pytest.approx(19 * 80 / 39)  # the steps' own variance is 80 / 39


def test_few_steps_have_no_interval() -> None:
    assert mean_interval([1, 2, 3] * 6 + [2]) == MeanInterval(2.0, None, None)
    assert mean_interval([7]).half_percent is None
    assert mean_interval([1, 2, 3, 2] * 5).half_percent is not None


def test_equal_steps_have_a_mean_without_doubt() -> None:
    assert mean_interval([10] * 59) == MeanInterval(10.0, 0.0, 59.0)


def test_a_drift_has_a_wide_interval() -> None:
    """No rule may end a run on +-2 % of it."""
    drift = mean_interval([1000 + step / 10 for step in range(1000)])
    assert drift.half_percent is not None
    assert drift.half_percent > 4
    assert (drift.effective_steps or 0) < 10


def test_a_repeated_step_tells_nothing_new() -> None:
    once, thrice = [], []
    for seed in range(40):
        draw = random.Random(seed)
        steps = [draw.randrange(10**5, 10**6) for _ in range(1000)]
        once.append(mean_interval(steps).effective_steps or 0)
        thrice.append(mean_interval([step for step in steps for _ in range(3)]).effective_steps or 0)
    assert sorted(thrice)[20] == pytest.approx(sorted(once)[20], rel=0.15)


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.7764), (5, 2.5706), (10, 2.2281), (30, 2.0423), (1e9, 1.95996)])
def test_students_t(freedom: float, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=5e-4)
