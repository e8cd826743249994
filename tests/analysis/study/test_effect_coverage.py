"""How often what is said of a key is true, in simulated studies: it is said to do nothing, or its ratio is in the interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcddp.analysis.study.axis_significance import CHANCE, p_value
from hpcddp.analysis.study.effects import ratio

Floats = NDArray[np.float64]
Draw = np.random.Generator

STUDIES = 400
MORE_STUDIES = 4000


def normal(draw: Draw, shape: tuple[int, ...]) -> Floats:
    """Runs that differ by 1 %."""
    return np.asarray(1 + 0.01 * draw.standard_normal(shape))


def skewed(draw: Draw, shape: tuple[int, ...]) -> Floats:
    """Most runs about as fast as they can be, few slower."""
    return np.asarray(1 / (1 + 0.01 * draw.exponential(size=shape)))


def slow_runs(draw: Draw, shape: tuple[int, ...]) -> Floats:
    """One run in five 15 % slower, as on a shared cluster."""
    return normal(draw, shape) / (1 + 0.15 * (draw.random(shape) < 0.2))


RUNS: Mapping[str, Callable[[Draw, tuple[int, ...]], Floats]] = {"normal": normal, "skewed": skewed, "slow runs": slow_runs}


def wrongly_said(runs: str, values: int, each: int, studies: int) -> float:
    """Share of studies of a key that does nothing in which it is said to do something."""
    draw = np.random.default_rng(values + 10 * each)
    rates = 1000 * RUNS[runs](draw, (studies, values, each))
    found = [p_value(study.tolist()) for study in rates]
    share = sum(p is not None and p <= CHANCE for p in found) / studies
    print(f"{runs:9}  {values} values  {each:2} runs: {100 * share:.1f} % of studies")
    return share


def held(runs: str, each: int, studies: int) -> float:
    """Share of studies in which the interval holds the ratio of true medians, of values as fast, or 1.02, 1.5, 4 times."""
    draw = np.random.default_rng(each)
    factors = np.array([1.0, 1.02, 1.5, 4.0])
    rates = 1000 * RUNS[runs](draw, (studies, 5, each))
    rates[:, 1:] *= factors[None, :, None]
    inside = [
        (found.low or 0) <= factor <= (found.high or 0)
        for study in rates
        for factor, value in zip(factors, study[1:], strict=True)
        for found in [ratio(value.tolist(), study[0].tolist())]
    ]
    print(f"{runs:9}  {each:2} runs: {100 * np.mean(inside):.1f} % of intervals")
    return float(np.mean(inside))


@pytest.mark.parametrize("each", [1, 2, 3, 6, 10])
@pytest.mark.parametrize("values", [2, 5])
@pytest.mark.parametrize("runs", RUNS)
def test_what_does_nothing_is_said_to_do_nothing(runs: str, values: int, each: int) -> None:
    """In 95 % of studies and more; the bound has two standard errors of so many studies on top."""
    assert wrongly_said(runs, values, each, STUDIES) <= 0.05 + 2 * (0.05 * 0.95 / STUDIES) ** 0.5


@pytest.mark.soak
@pytest.mark.parametrize("each", [3, 4, 5, 6, 8, 10])
@pytest.mark.parametrize("values", [2, 3, 5, 7])
@pytest.mark.parametrize("runs", RUNS)
def test_what_does_nothing_is_said_to_do_nothing_in_more_studies(runs: str, values: int, each: int) -> None:
    """Of 4000 each, in at most 5 %."""
    assert wrongly_said(runs, values, each, MORE_STUDIES) <= 0.05


@pytest.mark.parametrize("each", [6, 10])
@pytest.mark.parametrize("runs", RUNS)
def test_the_interval_of_an_effect_holds_the_truth(runs: str, each: int) -> None:
    """In 93 % and more: of values that do nothing, and of such that are 1.02, 1.5 and 4 times as fast."""
    assert held(runs, each, 150) >= 0.93


@pytest.mark.soak
@pytest.mark.parametrize("each", [6, 8, 10])
@pytest.mark.parametrize("runs", RUNS)
def test_the_interval_of_an_effect_holds_the_truth_in_more_studies(runs: str, each: int) -> None:
    """2000 studies of four values each."""
    assert held(runs, each, 2000) >= 0.93


@pytest.mark.parametrize(("each", "factor"), [(3, 1.06), (6, 1.03), (10, 1.02)])
def test_an_effect_is_found(each: int, factor: float) -> None:
    """In nine of ten studies, of runs that differ by 1 %: the fewer runs, the larger it must be."""
    draw = np.random.default_rng(each)
    rates = normal(draw, (STUDIES, 2, each))
    rates[:, 1] *= factor
    found = [p_value(study.tolist()) for study in rates]
    assert sum(p is not None and p <= CHANCE for p in found) >= 0.9 * STUDIES
