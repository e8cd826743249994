from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.records.steps import (
    RECORDED,
    RunSteps,
    StepSpan,
    before,
    joined,
    mean_over_ranks,
    mean_step_ns,
    median_or_none,
    median_step_ns,
    over_ranks,
    part_mean_ns,
    throughput_per_s,
    unaccounted,
)
from hpcddp.core.records import PARTS


def table(totals: list[float], forward: list[float | None], flags: list[int] | None = None) -> Columns:
    """One rank's rows with two measured columns."""
    measured = {f"{part}_ns": [None] * len(totals) for part in RECORDED} | {"forward_ns": forward, "total_ns": totals}
    head = {"step": np.arange(len(totals)), "flags": np.array(flags or [0] * len(totals))}
    return head | {name: np.array(values, np.float64) for name, values in measured.items()}


def reduced(ranks: list[Columns], steady_from_step: int = 0) -> RunSteps:
    return over_ranks(ranks, len(ranks), StepSpan(steady_from_step))


RANKS = [
    table([90.0, 10.0, 30.0, 20.0], [9.0, 4.0, 6.0, 8.0], [1, 0, 0, 0]),
    table([80.0, 12.0, 20.0, 40.0], [7.0, 6.0, 6.0, 2.0], [1, 0, 0, 0]),
]
"""Mean over ranks per step: 85 (warm-up), 11, 25, 30; windows without it 60 and 72; forward: 8 (warm-up), 5, 6, 5."""


def test_a_run_lasts_as_long_as_its_ranks_windows_exactly() -> None:
    """60 and 72 for three steps, the warm-up aside: 66 / 3, not the 27.3 of the slowest rank in every step; 4 / 3 is no float."""
    found = reduced(RANKS)
    assert found.window_ns.tolist() == [60.0, 72.0]
    assert mean_step_ns(found) == 22
    assert mean_step_ns(reduced([table([1.0, 1.0, 2.0], [None] * 3)])) == Fraction(4, 3)


@pytest.mark.parametrize("ranks", [1, 2, 64, 512])
def test_jitter_of_where_steps_end_is_no_time(ranks: int) -> None:
    """Ranks that exchange every 100, and end each step up to 1 % sooner or later: 0.1 % off at most, whatever their number."""
    ends = np.arange(1001)[None, :] * 100.0 + np.random.default_rng(ranks).uniform(-1, 1, (ranks, 1001))
    found = mean_step_ns(reduced([table(list(np.diff(each)), [None] * 1000) for each in ends]))
    assert found is not None
    assert abs(found / 100 - 1) < 0.001


def test_a_stall_counts_as_often_as_it_comes() -> None:
    """Three steps of 10 and one of 210: 60 on average; half of the steps last 10."""
    found = reduced([table([10.0, 10.0, 10.0, 210.0] * 5, [None] * 20)])
    assert mean_step_ns(found) == 60
    assert median_step_ns(found) == 10


def test_a_typical_step_is_of_the_mean_over_ranks() -> None:
    """The median of 11, 25 and 30; with the warm-up it would be 27.5, of the slowest rank 30."""
    assert median_step_ns(reduced(RANKS)) == 25.0


def test_a_warmup_that_the_run_found_is_left_out_too() -> None:
    """From step 2 on: windows of 50 and 60 for two steps."""
    assert mean_step_ns(reduced(RANKS, steady_from_step=2)) == Fraction(55, 2)


def test_each_attempt_counts_up_to_where_the_next_one_took_over() -> None:
    """Before step 3: windows of 40 and 32 for two steps, as those cut off there have; of two attempts 120 and 144 for six."""
    found = over_ranks(RANKS, 2, StepSpan(0, 3))
    assert found.window_ns.tolist() == [40.0, 32.0]
    assert mean_step_ns(found) == mean_step_ns(before(found, 3)) == 18
    twice = joined([reduced(RANKS), reduced(RANKS)])
    assert twice.window_ns.tolist() == [120.0, 144.0]
    assert mean_step_ns(twice) == 22


def test_a_step_that_one_rank_did_not_measure_is_left_out() -> None:
    """It may have been the slowest: 10 and 12, 20 and 40 are left."""
    found = reduced([RANKS[0], table([80.0, 12.0, np.nan, 40.0], [7.0, 6.0, 6.0, 2.0], [1, 0, 0, 0])])
    assert found.steady.tolist() == [False, True, False, True]
    assert mean_step_ns(found) == Fraction(41, 2)


def test_steps_that_cannot_be_are_refused() -> None:
    """Sums over steps and ranks fit into 64 bits, or are none; rows are matched by step."""
    with pytest.raises(ValueError, match=r"the steps of all ranks last 8e\+09 s, longer than can be true"):
        reduced([table([4e18], [None]), table([4e18], [None])])
    with pytest.raises(ValueError, match=r"rank 1 did not step like rank 0 \(1 and 4 rows\)"):
        reduced([RANKS[0], table([9.0], [4.0])])


def test_a_part_is_the_mean_over_steps_and_the_ranks_that_measured_it() -> None:
    """Means 5, 6, 5 after the warm-up; unknown is None, not 0."""
    assert part_mean_ns(reduced(RANKS), "forward") == pytest.approx(16 / 3)
    assert part_mean_ns(reduced(RANKS), "comm_exposed") is None
    assert part_mean_ns(reduced([table([9.0], [4.0]), table([9.0], [None])]), "forward") == 4.0


def test_parts_add_up_to_the_step() -> None:
    """Where every rank measured all parts of every step, whatever these last: a tenth, two tenths, ... of each."""
    totals = np.random.default_rng(1).exponential(100e6, (3, 500)).round()
    shares = np.arange(1, len(PARTS) + 1) / sum(range(1, len(PARTS) + 1))
    ranks = []
    for each in totals:
        cuts = np.diff(np.round(np.cumsum([0.0, *shares])[:, None] * each), axis=0)
        rows = {f"{part}_ns": values for part, values in zip(PARTS, cuts, strict=True)}
        ranks.append(table(list(each), [None] * each.size) | rows | {"total_ns": cuts.sum(axis=0)})
    found = reduced(ranks)
    step = mean_step_ns(found)
    assert step is not None
    parts = [part_mean_ns(found, part) for part in PARTS]
    assert sum(part for part in parts if part is not None) == pytest.approx(float(step), rel=1e-12)
    assert unaccounted(float(step), parts) is None


def test_the_order_of_ranks_changes_nothing() -> None:
    ahead, back = reduced(RANKS), reduced(RANKS[::-1])
    assert ahead.step_ns.tolist() == back.step_ns.tolist()
    assert ahead.part_ns["forward"].tolist() == back.part_ns["forward"].tolist()


def test_mean_over_ranks_is_nan_where_none_measured() -> None:
    assert np.array_equal(mean_over_ranks(np.array([6.0, 0.0]), np.array([2.0, 0.0])), [3.0, np.nan], equal_nan=True)


@pytest.mark.parametrize(("values", "median"), [([], None), ([np.nan], None), ([3.0], 3.0), ([1.0, np.nan, 4.0], 2.5)])
def test_the_median_of_what_is_known(values: list[float], median: float | None) -> None:
    assert median_or_none(np.array(values, dtype=np.float64)) == median


def test_throughput_is_exact() -> None:
    """128 samples in 62.5 ms are 2048 per second; one in 3 ns a third of 10^9, which no float is."""
    assert throughput_per_s(128, 62_500_000.0) == 2048
    assert throughput_per_s(1, 3.0) == Fraction(10**9, 3)


def test_unaccounted_is_what_the_measured_parts_leave() -> None:
    assert unaccounted(10.0, [2.0, None, 5.0]) == 3.0
    assert unaccounted(10.0, [2.0, 8.0 - 1e-3]) is None
