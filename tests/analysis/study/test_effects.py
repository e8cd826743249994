"""Two groups of runs compared."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcddp.analysis.study.effects import Ratio, ratio

RUNS = st.lists(st.fractions(1, 1000, max_denominator=50), min_size=1, max_size=12)


def test_the_ratio_is_of_medians() -> None:
    """Medians 4 and 2; of three runs each the range is 3/5 to 9/1."""
    assert ratio([3.0, 9.0, 4.0], [2.0, 1.0, 5.0]) == Ratio(2.0, 3 / 5, 9.0, "range")


def test_one_run_against_one_has_no_interval() -> None:
    """There is nothing to tell spread from difference."""
    assert ratio([3.0], [2.0]) == Ratio(1.5, None, None, None)


def test_from_six_runs_on_there_is_an_interval() -> None:
    """Six and six; with five on either side the range."""
    six = [98.0, 99.0, 100.0, 101.0, 102.0, 103.0]
    found = ratio(six, [value / 2 for value in six])
    assert (found.ratio, found.kind) == (2.0, "95 %")
    assert found.low is not None
    assert found.high is not None
    assert 2 * 98 / 103 < found.low < 2 < found.high < 2 * 103 / 98
    assert ratio(six, six[1:]).kind == "range"


def test_equal_runs_have_a_ratio_of_exactly_one() -> None:
    """Thirds included."""
    assert ratio([Fraction(1, 3)] * 6, [Fraction(1, 3)] * 7) == Ratio(1.0, 1.0, 1.0, "95 %")


@pytest.mark.dear
@given(RUNS, RUNS)
@example([Fraction(1, 10)] * 6, [Fraction(3, 10)] * 6)
def test_an_interval_holds_its_ratio(a: list[Fraction], b: list[Fraction]) -> None:
    """To the last bit: 0.1 / 0.3 is a little more in doubles than a third."""
    found = ratio(a, b)
    if found.low is not None and found.high is not None:
        assert found.low <= found.ratio <= found.high


@pytest.mark.dear
@given(RUNS, RUNS, st.randoms())
def test_the_order_of_runs_makes_no_difference(a: list[Fraction], b: list[Fraction], shuffle: Random) -> None:
    """Neither to the ratio nor to its interval."""
    found = ratio(a, b)
    shuffle.shuffle(a)
    shuffle.shuffle(b)
    assert ratio(a, b) == found


@pytest.mark.parametrize("runs", [6, 10])
def test_the_interval_of_a_ratio_holds_the_truth(runs: int) -> None:
    """In at least 93 % of 300 studies in which runs of one group vary three times as much."""
    draw = np.random.default_rng(runs)
    studies = [(100 + draw.standard_normal(runs), 110 + 3 * draw.standard_normal(runs)) for _ in range(300)]
    found = [ratio(list(a), list(b)) for a, b in studies]
    assert sum((each.low or 0) <= 100 / 110 <= (each.high or 0) for each in found) >= 0.93 * 300
