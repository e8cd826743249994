"""The end of a warm-up: by hand, and on series whose truth is known."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest

from hpcddp.worker.training.steady_state import warmup_steps

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


def test_steps_that_never_settle_have_no_end_of_warm_up() -> None:
    """Neither at the first step, nor where the search ends."""
    assert warmup_steps([1000 - step for step in range(200)]) is None


@pytest.mark.parametrize(("share", "unknown"), [(0.55, 20), (0.6, 20), (0.7, 17)])
def test_a_warm_up_of_more_than_half_is_not_told_as_none(share: float, unknown: int) -> None:
    """1.3 times as long for most of the run: that its end is not known is said in nearly every run."""
    cuts = [warmup_steps(times(lambda step: 1.3 if step < share * 550 else 1.0, seed, phi=0.5)) for seed in SEEDS]
    assert cuts.count(None) >= unknown


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_of_sound_runs_nearly_all_have_an_answer(phi: float) -> None:
    """Without a warm-up and with one of 60 steps."""
    for shape in (lambda _: 1.0, lambda step: 1.3 if step < 60 else 1.0):
        cuts = [warmup_steps(times(shape, seed, phi=phi)) for seed in range(100)]
        assert cuts.count(None) <= 2


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
