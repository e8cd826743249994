from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hpcddp.analysis.numbers.steps import (
    RECORDED,
    RunSteps,
    mean_over_ranks,
    median_or_none,
    median_step_ns,
    over_ranks,
    part_median_ns,
    throughput_per_s,
    unaccounted,
)
from hpcddp.analysis.records.rows import Columns


def table(totals: list[float], forward: list[float | None], flags: list[int] | None = None) -> Columns:
    """One rank's rows with two measured columns."""
    measured = {f"{part}_ns": [None] * len(totals) for part in RECORDED} | {"forward_ns": forward, "total_ns": totals}
    head = {"step": np.arange(len(totals)), "flags": np.array(flags or [0] * len(totals))}
    return head | {name: np.array(values, np.float64) for name, values in measured.items()}


def reduced(ranks: list[Columns], steady_from_step: int = 0) -> RunSteps:
    return over_ranks(ranks, len(ranks), steady_from_step)


RANKS = [
    table([90.0, 10.0, 30.0, 20.0], [9.0, 4.0, 6.0, 8.0], [1, 0, 0, 0]),
    table([80.0, 12.0, 20.0, 40.0], [7.0, 6.0, 6.0, 2.0], [1, 0, 0, 0]),
]
"""Slowest rank per step: 90 (warm-up), 12, 30, 40; forward's mean over ranks: 8 (warm-up), 5, 6, 5."""


def test_a_step_lasts_as_long_as_its_slowest_rank() -> None:
    """Max over ranks, step by step: not the max of the ranks' medians."""
    assert reduced(RANKS).step_ns.tolist() == [90.0, 12.0, 30.0, 40.0]


def test_the_median_leaves_the_warmup_out() -> None:
    """Median of 12, 30, 40; with the warm-up it would be 35."""
    assert median_step_ns(reduced(RANKS)) == 30.0


def test_a_warmup_that_the_run_found_is_left_out_too() -> None:
    """From step 2 on: median of 30 and 40."""
    assert median_step_ns(reduced(RANKS, steady_from_step=2)) == 35.0


def test_a_step_that_one_rank_did_not_measure_is_left_out() -> None:
    """It may have been the slowest: median of 12 and 40, of which the third step is neither."""
    found = reduced([RANKS[0], table([80.0, 12.0, np.nan, 40.0], [7.0, 6.0, 6.0, 2.0], [1, 0, 0, 0])])
    assert found.steady.tolist() == [False, True, False, True]
    assert median_step_ns(found) == 26.0


def test_a_part_is_the_median_over_steps_of_the_mean_over_ranks() -> None:
    """Means 5, 6, 5 after the warm-up."""
    assert part_median_ns(reduced(RANKS), "forward") == 5.0


def test_a_part_that_was_not_measured_is_none() -> None:
    """Unknown is None, not 0."""
    assert part_median_ns(reduced(RANKS), "comm_exposed") is None


def test_a_part_measured_on_one_rank_only_is_that_ranks() -> None:
    """The mean is over the ranks that measured."""
    ranks = [table([9.0], [4.0]), table([9.0], [None])]
    assert part_median_ns(reduced(ranks), "forward") == 4.0


def test_the_order_of_ranks_changes_nothing() -> None:
    """Max and mean know no order."""
    ahead, back = reduced(RANKS), reduced(RANKS[::-1])
    assert ahead.step_ns.tolist() == back.step_ns.tolist()
    assert ahead.part_ns["forward"].tolist() == back.part_ns["forward"].tolist()


def test_ranks_that_stepped_differently_are_refused() -> None:
    """Rows are matched by step; 4 and 3 rows do not match."""
    with pytest.raises(ValueError, match=r"rank 1 did not step like rank 0 \(1 and 4 rows\)"):
        reduced([RANKS[0], table([9.0], [4.0])])


def test_mean_over_ranks_is_nan_where_none_measured() -> None:
    """6 / 2 and 0 / 0."""
    assert np.array_equal(mean_over_ranks(np.array([6.0, 0.0]), np.array([2.0, 0.0])), [3.0, np.nan], equal_nan=True)


@pytest.mark.parametrize(("values", "median"), [([], None), ([np.nan], None), ([3.0], 3.0), ([1.0, np.nan, 4.0], 2.5)])
def test_the_median_of_what_is_known(values: list[float], median: float | None) -> None:
    """None of nothing, the middle's mean of an even number."""
    assert median_or_none(np.array(values, dtype=np.float64)) == median


def test_throughput_is_the_global_batch_by_the_step() -> None:
    """128 samples in 62.5 ms are 2048 per second."""
    assert throughput_per_s(128, 62_500_000.0) == 2048


def test_throughput_is_exact() -> None:
    """One sample in 3 ns is a third of 10^9, which no float is."""
    assert throughput_per_s(1, 3.0) == Fraction(10**9, 3)


def test_unaccounted_is_what_the_measured_parts_leave() -> None:
    """10 - (2 + 5), the unmeasured part aside."""
    assert unaccounted(10.0, [2.0, None, 5.0]) == 3.0
