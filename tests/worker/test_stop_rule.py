"""When a run has enough timed steps, told how long its steps were.

The end of a warm-up: by hand, and on series whose truth is known.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from hpcddp.core.point import Measure
from hpcddp.worker.training.stop_rule import More, more_for_interval, more_for_seconds, steady_state, warmup_steps

MS = 10**6


def measure(**changes: Any) -> Measure:
    return Measure(**{"warmup_steps": 10, "steps": 100, "seconds": 60.0, "max_steps": 20_000, **changes})


def run(rule: Callable[[list[int]], More], step_ns: Callable[[], int], warmup: int = 10) -> tuple[list[int], list[int], str]:
    """All step times, the steps at which the rule was asked, and what stopped the run."""
    times, pauses = [step_ns() for _ in range(warmup - 1)], []
    while (more := rule(times)).steps:
        pauses.append(len(times))
        times += [step_ns() for _ in range(more.steps + (len(times) == warmup - 1))]
    return times, pauses, more.stopped_by


def noisy(seed: int, ms: float, percent: float) -> Callable[[], int]:
    draw = random.Random(seed)
    return lambda: round(ms * MS * (1 + percent / 100 * draw.gauss(0, 1)))


def test_seconds_are_the_timed_steps_own() -> None:
    times, _, stopped_by = run(lambda times: more_for_seconds(measure(), times), noisy(1, 100, 3))
    assert stopped_by == "seconds"
    assert 60 <= sum(times[10:]) / 1e9 <= 60 * 1.021


def test_pauses_are_rare() -> None:
    """Stretches double from 2 s on: for 600 s some ten pauses, two of them at most less than 2 s apart."""
    times, pauses, _ = run(lambda times: more_for_seconds(measure(seconds=600.0), times), noisy(2, 50, 10))
    stretches_s = [sum(times[begin:end]) / 1e9 for begin, end in zip(pauses, [*pauses[1:], len(times)], strict=True)]
    assert len(pauses) <= 12
    assert all(stretch_s >= 1.8 for stretch_s in stretches_s[:-1])


def test_a_slow_start_does_not_end_a_run_early() -> None:
    pace = iter([1000 * MS] * 10 + [10 * MS] * 10_000)
    times, _, _ = run(lambda times: more_for_seconds(measure(seconds=10.0), times), lambda: next(pace))
    assert 1000 <= len(times) - 10 <= 1030


def test_steps_that_get_slower_do_not_make_a_run_long() -> None:
    pace = iter([10 * MS] * 9 + [100 * MS] * 10_000)
    times, _, _ = run(lambda times: more_for_seconds(measure(), times), lambda: next(pace))
    assert 600 <= len(times) - 10 <= 620


def test_without_a_warm_up_a_few_steps_show_the_pace() -> None:
    assert more_for_seconds(measure(warmup_steps=0), []) == More(10, "max_steps")


def test_seconds_end_at_the_limit() -> None:
    times, _, stopped_by = run(lambda times: more_for_seconds(measure(max_steps=300), times), noisy(1, 10, 3))
    assert (len(times) - 10, stopped_by) == (300, "max_steps")


def test_the_interval_is_looked_at_from_steps_on() -> None:
    times, pauses, stopped_by = run(lambda times: more_for_interval(measure(), times, ()), noisy(1, 10, 1))
    assert (len(times) - 10, pauses, stopped_by) == (100, [9], "interval")


def test_steps_are_added_until_the_interval_is_narrow() -> None:
    """Noise of 30 % needs some 1,100 steps for +-2 % (2.09 x 1.08 x 30 % / sqrt(n)): found in a few stretches, not overdone."""
    for seed in range(4):
        times, pauses, stopped_by = run(lambda times: more_for_interval(measure(), times, ()), noisy(seed, 10, 30))
        assert stopped_by == "interval"
        assert 600 <= len(times) - 10 <= 3000
        assert len(pauses) <= 7
        found = steady_state(measure(), times, ()).interval
        assert found
        assert found.half_percent
        assert found.half_percent <= 2


def test_stalls_count_in_the_interval() -> None:
    """Every fourth step lasts 200 ms longer: the interval is that of the 60 ms that pass a step, and holds them."""
    wide, step = measure(interval_percent=10.0), iter(range(10**6))
    times, _, stopped_by = run(
        lambda times: more_for_interval(wide, times, ()), lambda: (210 if next(step) % 4 == 3 else 10) * MS
    )
    assert stopped_by == "interval"
    found = steady_state(wide, times, ()).interval
    assert found
    assert found.half_width
    assert abs(found.mean - 60 * MS) <= found.half_width <= 0.1 * 60 * MS


def test_an_interval_that_stays_wide_ends_at_the_limit() -> None:
    times, _, stopped_by = run(lambda times: more_for_interval(measure(max_steps=500), times, ()), noisy(1, 10, 60))
    assert (len(times) - 10, stopped_by) == (500, "max_steps")


def test_looks_at_the_interval_are_rare_too() -> None:
    step_ns = noisy(1, 1, 12)
    times = [step_ns() for _ in range(110)]
    assert 1900 <= more_for_interval(measure(), times, ()).steps <= 2100


def test_steps_after_a_pause_and_of_the_warm_up_count_in_no_interval() -> None:
    """Left are ten of 10 ms and nine of 11: their mean is 199/19 ms, and any step more would move it."""
    times = [500 * MS] * 20 + [10 * MS, 11 * MS] * 10
    times[21] = 900 * MS
    found = steady_state(measure(warmup_steps=20), times, {21}).interval
    assert found
    assert found.mean == pytest.approx(199 / 19 * MS)


@pytest.mark.parametrize(("warmup", "from_step"), [("fixed", 10), ("detect", 60)])
def test_a_detected_warm_up_is_cut_where_asked_for(warmup: str, from_step: int) -> None:
    steady = steady_state(measure(warmup=warmup), [15 * MS] * 60 + [10 * MS, 11 * MS] * 120, ())
    assert (steady.detected_steps, steady.from_step) == (60, from_step)


def test_the_users_warm_up_is_never_shortened() -> None:
    assert steady_state(measure(warmup="detect"), [10 * MS, 11 * MS] * 100, ()).from_step == 10
    assert steady_state(measure(warmup="detect"), [10 * MS] * 30, ())[:2] == (None, 10)


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
    assert warmup_steps([10] * 99) is None
    assert warmup_steps([10] * 100) == 0


def test_steps_that_never_settle_have_no_end_of_warm_up() -> None:
    assert warmup_steps([1000 - step for step in range(200)]) is None


@pytest.mark.parametrize(("share", "unknown"), [(0.55, 20), (0.6, 20), (0.7, 17)])
def test_a_warm_up_of_more_than_half_is_not_told_as_none(share: float, unknown: int) -> None:
    cuts = [warmup_steps(times(lambda step: 1.3 if step < share * 550 else 1.0, seed, phi=0.5)) for seed in SEEDS]
    assert cuts.count(None) >= unknown


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_of_sound_runs_nearly_all_have_an_answer(phi: float) -> None:
    for shape in (lambda _: 1.0, lambda step: 1.3 if step < 60 else 1.0):
        cuts = [warmup_steps(times(shape, seed, phi=phi)) for seed in range(50)]
        assert cuts.count(None) <= 1


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_slow_first_steps_are_found(phi: float) -> None:
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
    cuts = [warmup_steps(times(lambda _: 1.0, seed, phi=phi, spikes=spikes)) or 0 for seed in SEEDS]
    assert statistics.median(cuts) <= 5
    assert sorted(cuts)[15] <= 55
