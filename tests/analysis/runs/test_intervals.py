"""How well medians are known: over runs and within them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcddp.analysis.records.csv_reader import Columns
from hpcddp.analysis.records.steps import over_ranks
from hpcddp.analysis.runs.intervals import (
    half_width_percent,
    interpolation,
    interval_rank,
    mean_half_percent,
    range_confidence,
    spread,
)
from hpcddp.core.batch_means import BATCHES, mean_interval
from hpcddp.core.records import PARTS


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
    """Of six values the outermost, in any order; of seven a bit inside of them."""
    assert spread([Fraction(v) for v in (6, 1, 5, 2, 4, 3)]) == (1.0, 6.0, "95 %")
    low, high, kind = spread([Fraction(v) for v in range(1, 8)])
    assert [low, high] == pytest.approx([1 + 11 / 15, 7 - 11 / 15])
    assert kind == "95 %"


def test_interpolation_by_hand() -> None:
    """n = 7: the outermost hold 63/64, the next 56/64, so I = (63/64 - 0.95) / (7/64) = 11/35 and 6 I / (1 + 5 I) = 11/15."""
    assert interpolation(7, 1) == pytest.approx(11 / 15)


def test_how_often_a_range_holds_the_median() -> None:
    """It misses where all values lie on one side: 2 / 2^n."""
    assert [range_confidence(n) for n in (2, 3, 4, 5, 6)] == [0.5, 0.75, 0.875, 0.9375, 0.96875]


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


def ranks_of(common: NDArray[np.float64], ranks: int, jitter_ns: float) -> list[Columns]:
    """Step rows of so many ranks that share their steps, but for where each of them ends a step."""
    draw = np.random.default_rng(ranks)
    found = []
    for _ in range(ranks):
        ends = np.cumsum(common) + jitter_ns * draw.standard_normal(common.size)
        lengths = np.diff(ends, prepend=0.0).astype(np.int64)
        empty = np.full(common.size, np.nan)
        parts = {f"{part}_ns": empty for part in (*PARTS, "h2d_hidden")}
        number = np.arange(common.size)
        found.append({"step": number, "flags": np.zeros_like(number), "total_ns": lengths, **parts})
    return found


@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_the_jobs_interval_is_that_of_analysis(ranks: int) -> None:
    """Rank 0 stops by its own steps, analysis has all ranks': intervals differ by a tenth in width at most."""
    draw = np.random.default_rng(3)
    for _ in range(20):
        common = 1e8 * (1 + 0.05 * draw.standard_normal(1000))
        tables = ranks_of(common, ranks, jitter_ns=1e6)
        steps = over_ranks(iter(tables), ranks)
        of_job = mean_interval(tables[0]["total_ns"].tolist()).half_percent
        assert mean_half_percent(steps.step_ns[steps.steady]) == pytest.approx(of_job, rel=0.1)


def test_a_run_of_few_steps_has_no_interval() -> None:
    """None at all, nineteen; from twenty on there is one."""
    assert mean_half_percent(np.array([])) is None
    assert mean_half_percent(np.arange(1.0, BATCHES)) is None
    assert mean_half_percent(np.arange(1.0, BATCHES + 1)) is not None
