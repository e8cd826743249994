"""The end of a warm-up and the interval of a median: by hand, and on series whose truth is known."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest

from hpcddp.worker.training.steady import MedianInterval, effective_steps, median_interval, warmup_steps

SEEDS = range(20)


def autoregressive(steps: int, phi: float, draw: random.Random) -> list[float]:
    """AR(1) with mean 0 and standard deviation 1: each step takes `phi` of the one before it."""
    value, found = draw.gauss(0, 1), []
    for _ in range(steps):
        found.append(value)
        value = phi * value + math.sqrt(1 - phi**2) * draw.gauss(0, 1)
    return found


def times(shape: Callable[[int], float], seed: int, steps: int = 550, phi: float = 0.0, spikes: float = 0.03) -> list[int]:
    """Steps of 10 ms with 3 % of noise, 3 % of them spikes of 2 to 10 times that, and `shape` times as long at the start."""
    draw = random.Random(seed)
    noise = autoregressive(steps, phi, draw)
    spiked = [draw.uniform(2, 10) if draw.random() < spikes else 1.0 for _ in noise]
    return [round(1e7 * (1 + 0.03 * noise[step]) * spiked[step] * shape(step)) for step in range(steps)]


def test_the_cut_minimises_the_error_of_the_mean() -> None:
    """110 steps, the first 10 twice as long: their two means of five go, and nothing else does."""
    assert warmup_steps([20] * 10 + [9, 11] * 50) == 10
    assert warmup_steps([10] * 110) == 0


def test_too_few_steps_say_nothing() -> None:
    """Below 20 means of five there is no answer rather than a guess."""
    assert warmup_steps([10] * 99) is None
    assert warmup_steps([10] * 100) == 0


def test_at_most_half_is_warm_up() -> None:
    """Steps that never settle are not cut away to the last."""
    assert warmup_steps([1000 - step for step in range(200)]) == 100


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_slow_first_steps_are_found(phi: float) -> None:
    """60 steps of 1.3 times the length: never fewer are cut, in most runs exactly those, among spikes too."""
    cuts = [warmup_steps(times(lambda step: 1.3 if step < 60 else 1.0, seed, phi=phi)) or 0 for seed in SEEDS]
    assert min(cuts) >= 60
    assert statistics.median(cuts) == 60
    assert sorted(cuts)[15] <= 80


def test_a_decay_is_cut_where_it_drowns_in_the_noise() -> None:
    """1 + exp(-step/20) / 2 is within 3 % of its end from step 56 on."""
    cuts = [warmup_steps(times(lambda step: 1 + 0.5 * math.exp(-step / 20), seed)) or 0 for seed in SEEDS]
    assert min(cuts) >= 45
    assert 50 <= statistics.median(cuts) <= 75
    assert max(cuts) <= 110


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("spikes", [0.0, 0.03])
def test_without_a_warm_up_little_is_cut(phi: float, spikes: float) -> None:
    """Nothing in most runs; spikes are no warm-up."""
    cuts = [warmup_steps(times(lambda _: 1.0, seed, phi=phi, spikes=spikes)) or 0 for seed in SEEDS]
    assert statistics.median(cuts) <= 5
    assert sorted(cuts)[15] <= 55


def test_the_interval_lies_between_ordered_steps() -> None:
    """Of 100 independent steps 1..100, those at 50 - 9.8 and 50 + 9.8, outwards: the 40th and the 61st; median 50.5."""
    found = median_interval([step for pair in zip(range(1, 51), range(51, 101), strict=True) for step in pair])
    assert found == MedianInterval(50.5, 40, 61, 100.0)
    assert found.half_percent == pytest.approx(50 * 21 / 50.5)


def test_few_steps_have_no_interval() -> None:
    """Of five ordered steps, the outermost are not far enough apart for 95 %."""
    assert median_interval([1, 5, 2, 4, 3])[:3] == (3, None, None)
    assert median_interval([7]) == MedianInterval(7, None, None, 1.0)
    assert median_interval([7]).half_percent is None


def test_equal_steps_have_a_median_without_doubt() -> None:
    """n = 20, all alike: the interval has no width."""
    assert median_interval([10] * 20).half_percent == 0


def test_a_repeated_step_tells_nothing_new() -> None:
    """1,000 independent steps, each three times over, tell as much as 1,000 (correlations 2/3 and 1/3: 3000 / (1 + 2 * 1))."""
    alone, thrice = [], []
    for seed in SEEDS:
        draw = random.Random(seed)
        once = [draw.randrange(10**6) for _ in range(1000)]
        alone.append(effective_steps(once, statistics.median(once)) or 0)
        thrice.append(effective_steps([step for step in once for _ in range(3)], statistics.median(once)) or 0)
    assert statistics.median(alone) == pytest.approx(1000, rel=0.1)
    assert statistics.median(thrice) == pytest.approx(1000, rel=0.1)


def test_a_drift_has_no_interval() -> None:
    """Steps that only get longer do not scatter around a median."""
    assert median_interval(list(range(1, 1001))).half_percent is None
    assert effective_steps(range(1, 60_001), 30_000) is None  # and are not looked at for minutes


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_interval_covers_the_true_median(phi: float) -> None:
    """It is in the 95 % interval of at least 93 of 100 series of 1,000 dependent steps, and not of nearly all."""
    draw = random.Random(11)
    inside = 0
    for _ in range(400):
        found = median_interval([round(1e7 + 1e5 * value) for value in autoregressive(1000, phi, draw)])
        assert found.low_ns is not None
        assert found.high_ns is not None
        inside += found.low_ns <= 1e7 <= found.high_ns
    assert 0.93 <= inside / 400 <= 0.99
