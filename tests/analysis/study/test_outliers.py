"""Runs far from the others are named, and count all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.study.scaling import outliers
from tests.analysis.synthetic import MS, point, write_runs, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

CLOSE = [98.0, 99.0, 100.0, 100.5, 101.0, 102.0]


def test_a_far_run_by_hand() -> None:
    """Deviations from 100.25 are 2.25, 1.25, 0.25, 0.25, 0.75 and 11.75: their median 1 is 1.48 scaled, five are 7.4."""
    assert outliers([*CLOSE[:5], 112.0]) == [5]
    assert outliers([*CLOSE[:5], 107.0]) == []


def test_close_runs_are_not_named() -> None:
    """Nor any of fewer than six, nor those that differ by less than anyone would look into, however equal the others."""
    assert outliers(CLOSE) == []
    assert outliers([*CLOSE[:4], 112.0]) == []
    assert outliers([100.0] * 6 + [101.9]) == []
    assert outliers([100.0] * 6 + [102.1]) == [6]


@pytest.mark.parametrize("runs", [6, 10])
def test_few_clean_points_have_one(runs: int) -> None:
    """Runs that differ by 3 % at random: a run is named in less than 8 % of 1000 points."""
    points = np.random.default_rng(runs).normal(100, 3, (1000, runs))
    assert sum(bool(outliers(list(each))) for each in points) < 80


def test_a_far_run_is_told_and_counts(tmp_path: Path) -> None:
    """A note, a row in outliers.csv; the median and n are of all seven."""
    study = write_study(tmp_path / "s", [point(1, 1)], repeat=7)
    write_runs(study, point(1, 1), [step * MS for step in (100, 101, 99, 100, 200, 100, 101)])
    (result,) = analyze(tmp_path)
    label = point(1, 1).label
    assert f"note: r5 of {label} is 50.0 % slower than its point's median: far from the others, counted all the same" in " ".join(
        result.text.split()
    )
    assert [(row["run"], row["percent"]) for row in result.plain["outliers"]] == [(5, pytest.approx(-50.0))]
    assert result.plain["points"][0]["n"] == 7
    assert (tmp_path / "s/report/outliers.csv").is_file()
