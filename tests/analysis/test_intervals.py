"""How well medians are known: over runs and within them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcddp.analysis.numbers import intervals
from hpcddp.analysis.numbers.intervals import (
    block_length,
    bootstrap_interval,
    bootstrap_percent,
    drawn_ends,
    half_width_percent,
    interpolation,
    interval_rank,
    limit_ends,
    resampled_medians,
    spread,
    student_t,
)

SERIES = 300


def autoregressive(phi: float, series: int, steps: int) -> NDArray[np.float64]:
    """(series, steps) of x_t = phi x_(t-1) + normal noise, in its steady state; the median is 0."""
    noise = np.random.default_rng(7).standard_normal((series, steps))
    values = np.empty_like(noise)
    values[:, 0] = noise[:, 0] / math.sqrt(1 - phi**2)
    for step in range(1, steps):
        values[:, step] = phi * values[:, step - 1] + noise[:, step]
    return values


@pytest.mark.parametrize(("n", "rank"), [(1, None), (5, None), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6)])
def test_the_interval_is_that_of_the_sign_test(n: int, rank: int | None) -> None:
    """Ranks as tables of the sign test's 95 % interval of the median have them."""
    assert interval_rank(n) == rank


@pytest.mark.parametrize("n", range(6, 60))
def test_the_interval_is_the_narrowest_with_95_percent(n: int) -> None:
    """P(the median lies outside) = 2 P(Binomial(n, 1/2) < k) is at most 5 % for k and more for k + 1."""
    rank = interval_rank(n)
    assert rank is not None

    def missed(k: int) -> Fraction:
        return Fraction(2 * sum(math.comb(n, i) for i in range(k)), 2**n)

    assert missed(rank) <= Fraction(5, 100) < missed(rank + 1)


def test_one_run_has_no_spread() -> None:
    """Neither range nor interval."""
    assert spread([Fraction(5)]) == (None, None, None)


def test_below_six_runs_the_range_is_shown() -> None:
    """Smallest and largest of five, in any order."""
    assert spread([Fraction(v) for v in (3, 1, 5, 4, 2)]) == (1.0, 5.0, "range")


def test_from_six_runs_the_interval_is_shown() -> None:
    """Of six values a bit inside the outermost: by 5/14 of the way to the next, in any order."""
    low, high, kind = spread([Fraction(v) for v in (6, 1, 5, 2, 4, 3)])
    assert [low, high] == pytest.approx([1 + 5 / 14, 6 - 5 / 14])
    assert kind == "95 %"


def test_interpolation_by_hand() -> None:
    """n = 6: the outermost hold 31/32, the next 25/32, so I = (31/32 - 0.95) / (6/32) = 0.1 and 5 I / (1 + 4 I) = 5/14."""
    assert interpolation(6, 1) == pytest.approx(5 / 14)


@pytest.mark.parametrize("n", range(6, 60))
def test_interpolation_stays_between_two_values(n: int) -> None:
    """From the value that holds 95 % towards the one that does not."""
    rank = interval_rank(n)
    assert rank is not None
    assert 0 <= interpolation(n, rank) < 1


def test_equal_runs_have_an_interval_without_width() -> None:
    """Exactly, whatever is interpolated."""
    assert spread([Fraction(1, 3)] * 7) == (1 / 3, 1 / 3, "95 %")


def test_half_the_width_of_runs() -> None:
    """Nine runs of 1 to 9: the interval is 5 -+ (3 - 0.2279), 55.44 % of 5; five runs have none."""
    assert half_width_percent([Fraction(v) for v in range(1, 10)]) == pytest.approx(55.442, abs=0.001)
    assert half_width_percent([Fraction(v) for v in range(1, 6)]) is None


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_interval_of_dependent_steps_holds_the_median(monkeypatch: pytest.MonkeyPatch, phi: float) -> None:
    """500 steps: in at least 93 % of 300 series, also where each step is nine tenths of the one before it."""
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    found = [bootstrap_interval(values) for values in autoregressive(phi, SERIES, 500)]
    held = sum(low <= 0 <= high for low, high in filter(None, found))
    assert held >= 0.93 * SERIES


def test_independent_steps_have_the_interval_of_order_statistics() -> None:
    """2000 steps: as wide as the ordered steps at n/2 -+ z sqrt(n)/2 are apart, within a quarter, on average over 10 series."""
    ratios = []
    for values in autoregressive(0.0, 10, 2000):
        ordered, reach = np.sort(values), 1.96 * math.sqrt(2000) / 2
        low, high = bootstrap_interval(values) or (0.0, 0.0)
        ratios.append((high - low) / (ordered[round(1000 + reach)] - ordered[round(1000 - reach)]))
    assert np.mean(ratios) == pytest.approx(1, abs=0.25)


def test_the_interval_is_the_same_every_time() -> None:
    """Drawn from a seed."""
    values = autoregressive(0.5, 1, 200)[0]
    assert bootstrap_interval(values) == bootstrap_interval(values)


def test_equal_steps_have_no_width() -> None:
    """And no division by their variance of 0."""
    assert bootstrap_interval(np.full(50, 3.0)) == (3.0, 3.0)


def test_too_few_steps_have_no_interval() -> None:
    """Nineteen; twenty have one."""
    assert bootstrap_percent(np.arange(19.0)) is None
    assert bootstrap_percent(np.arange(1.0, 21.0)) is not None


def test_resampled_series_are_made_of_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks as long as the series: each is the series from somewhere on, around its end; all have its median."""
    monkeypatch.setattr(intervals, "AT_ONCE", 21)
    assert resampled_medians(np.arange(7.0), 7).tolist() == [3.0] * intervals.RESAMPLES


@pytest.mark.parametrize(("phi", "length"), [(0.0, 1), (0.5, 7), (0.9, 60)])
def test_the_ends_of_long_series_are_those_of_many_resampled_ones(
    monkeypatch: pytest.MonkeyPatch, phi: float, length: int
) -> None:
    """Within a twentieth of the width of 4000; the last of the blocks is shorter."""
    monkeypatch.setattr(intervals, "RESAMPLES", 4000)
    values = autoregressive(phi, 1, 1501)[0]
    low, high = drawn_ends(values, length)
    assert limit_ends(values, length) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_equal_values_have_no_width_in_the_limit() -> None:
    """Nor has a series in which most are."""
    values = np.full(2000, 3.0)
    values[:100] = 9.0
    assert bootstrap_interval(values) == (3.0, 3.0)


def test_blocks_grow_with_dependence() -> None:
    """Independent steps: a few; phi 0.9: tens, and never more than a fifth of the series."""
    lengths = [np.mean([block_length(values) for values in autoregressive(phi, 20, 1000)]) for phi in (0.0, 0.5, 0.9)]
    assert lengths[0] < 6 < lengths[1] < 30 < lengths[2] < 150
    assert block_length(np.arange(100.0)) == 20


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.7764), (5, 2.5706), (10, 2.2281), (30, 2.0423), (1e9, 1.95996)])
def test_students_t(freedom: float, quantile: float) -> None:
    """As printed in tables."""
    assert student_t(freedom) == pytest.approx(quantile, rel=5e-4)
