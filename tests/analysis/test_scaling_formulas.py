from __future__ import annotations

import math
from fractions import Fraction

import pytest

from hpcddp.analysis.scaling import efficiency, interval_rank, speedup, spread


def test_speedup_is_the_ratio_of_throughputs() -> None:
    """9217 against 370 samples per second."""
    assert speedup(Fraction(9217), Fraction(370)) == Fraction(9217, 370)


def test_efficiency_is_speedup_by_the_ratio_of_gpus() -> None:
    """64 GPUs at 1000 against 4 at 100: 10 times on 16 times as many."""
    assert efficiency(Fraction(1000), 64, Fraction(100), 4) == Fraction(10, 16)


def test_a_baseline_against_itself_is_one() -> None:
    """n = 1 gives exactly 1."""
    assert efficiency(Fraction(1, 3), 3, Fraction(1, 3), 3) == 1


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
    """Of nine values the second smallest and second largest."""
    assert spread([Fraction(v) for v in (9, 1, 8, 2, 7, 3, 6, 4, 5)]) == (2.0, 8.0, "95 %")
