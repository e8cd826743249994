"""All steps of a run, and of a point's runs together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.analysis.figures.distribution import ridges
from hpcddp.analysis.records.steps import RunSteps
from hpcddp.analysis.runs.distribution import WIDTH, binned, distribution, pooled, quantile_ns, shares_between
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import LEAST_STEPS, bins_of, find
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

TIMES = st.lists(st.integers(1, 10**12), min_size=1, max_size=50)


def run_steps(times_ns: list[float], steady: list[bool]) -> RunSteps:
    times = np.array(times_ns)
    window = np.array([times[steady].sum()])
    return RunSteps(np.array(steady), times, times, {}, times[None, :], np.arange(len(times)), window, times, {})


@given(TIMES)
def test_a_quantile_is_a_step_that_was_measured(times_ns: list[int]) -> None:
    """The median and the longest, but for half a bin's width."""
    bins, ordered = binned(np.array(times_ns, dtype=np.float64)), sorted(times_ns)
    assert quantile_ns(bins, 0.5) == pytest.approx(ordered[(len(ordered) - 1) // 2], rel=0.51 * WIDTH)
    assert quantile_ns(bins, 1.0) == pytest.approx(ordered[-1], rel=0.51 * WIDTH)


@given(TIMES, TIMES)
def test_runs_add_up(a: list[int], b: list[int]) -> None:
    """In any order: the same as all steps at once."""
    one, other = binned(np.array(a, dtype=np.float64)), binned(np.array(b, dtype=np.float64))
    assert pooled([one, other]) == pooled([other, one]) == binned(np.array(a + b, dtype=np.float64))


def test_the_warmup_is_apart_and_what_follows_a_pause_nowhere() -> None:
    """Two steps before the first that counts; the one of 90 after a pause; one that was not measured."""
    found = distribution([run_steps([70.0, 80.0, 10.0, 90.0, 10.0, np.nan], [False, False, True, False, True, True])])
    assert found.warmup == binned(np.array([70.0, 80.0]))
    assert found.timed == binned(np.array([10.0, 10.0]))


def test_shares_between_edges() -> None:
    """Of 10, 10, 20 and 40 ns: half between 5 and 15, a quarter between 15 and 30, the rest beyond."""
    assert shares_between(binned(np.array([10.0, 10.0, 20.0, 40.0])), np.array([5.0, 15.0, 30.0])).tolist() == [0.5, 0.25]


def test_columns_narrower_than_a_bin_have_their_part_of_it() -> None:
    """Steps that differ by little, as on a quiet machine: a column without a bin's middle looked as if no step were so long."""
    found = shares_between(binned(np.linspace(1e8, 1.02e8, 20_000)), np.linspace(1.001e8, 1.019e8, 61))
    assert found.tolist() == pytest.approx([0.9 / 60] * 60, rel=0.1)


def test_a_points_runs_are_pooled(tmp_path: Path) -> None:
    """Two runs, one at 100 ms and one at 110 ms, a step in ten at 150: three modes, told about the median of all."""
    where = point(1, 1)
    study = write_study(tmp_path / "s", [where], 2)
    for run, base in ((1, 100), (2, 110)):
        recorded = Recorded(step_ns=lambda rank, step, base=base: (150 if step % 10 == 0 else base) * MS, steps=30, job=str(run))  # type: ignore[misc]
        write_run(study, where, recorded, run)
    found = find(load_study(study))
    edges, rows = ridges(found.detail.times)
    (ridge,) = rows.values()
    assert ridge.steps == 60
    assert ridge.median_s == pytest.approx(0.110, rel=WIDTH)
    assert ridge.mean == pytest.approx((0.45 * 100 + 0.45 * 110 + 0.1 * 150) / 110, rel=WIDTH)
    assert [ridge.p99, ridge.longest] == pytest.approx([150 / 110, 150 / 110], rel=2 * WIDTH)
    assert ridge.warmup == pytest.approx(1500 / 110, rel=0.1)
    assert ridge.warmup_steps == 2
    assert sorted(ridge.timed_shares[ridge.timed_shares > 0].tolist()) == pytest.approx([0.1, 0.45, 0.45])
    assert edges[0] < 100 / 110 < 150 / 110 < edges[-1]


def test_few_steps_have_no_distribution(tmp_path: Path) -> None:
    """A point with less than LEAST_STEPS steps in all its runs is left out."""
    few, enough = point(1, 1), point(1, 2)
    study = write_study(tmp_path / "s", [few, enough])
    write_run(study, few, Recorded(step_ns=MS, steps=LEAST_STEPS - 1))
    write_run(study, enough, Recorded(step_ns=MS, steps=LEAST_STEPS))
    found = find(load_study(study))
    (row,) = found.detail.times["row"].unique()
    assert found.shown.loc[row, "gpus"] == 2
    assert bins_of(found.detail.times, row, "timed")[0][1] == LEAST_STEPS
