from __future__ import annotations

from fractions import Fraction

from hpcddp.analysis.study.scaling import efficiency, speedup


def test_speedup_is_the_ratio_of_throughputs() -> None:
    """9217 against 370 samples per second."""
    assert speedup(Fraction(9217), Fraction(370)) == Fraction(9217, 370)


def test_efficiency_is_speedup_by_the_ratio_of_gpus() -> None:
    """64 GPUs at 1000 against 4 at 100: 10 times on 16 times as many."""
    assert efficiency(Fraction(1000), 64, Fraction(100), 4) == Fraction(10, 16)


def test_a_baseline_against_itself_is_one() -> None:
    """n = 1 gives exactly 1."""
    assert efficiency(Fraction(1, 3), 3, Fraction(1, 3), 3) == 1
