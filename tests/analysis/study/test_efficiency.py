"""Efficiency with its interval: in the table, in the figure, on the page."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from hpcddp.analysis import analyze
from hpcddp.analysis.figures.figures import point_drawings
from hpcddp.analysis.figures.scaling import efficiency_figure
from hpcddp.analysis.report.tables import scaling
from hpcddp.analysis.report.terminal_table import terminal_forms
from hpcddp.analysis.study.effects import Ratio
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import efficiency_of_runs
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.util.wording import percent_within, percents
from hpcddp.analysis.verdicts.findings import Findings, find
from tests.analysis.synthetic import MS, point, write_runs, write_study


def three_sizes(folder: Path, repeat: int) -> Findings:
    """1, 2 and 4 GPUs whose runs differ by some per cent."""
    points = [point(1, gpus) for gpus in (1, 2, 4)]
    study = write_study(folder, points, repeat)
    for each in points:
        write_runs(study, each, [(100 + 5 * each.ranks) * MS + run * MS for run in range(repeat)])
    return find(load_study(study))


def test_below_six_runs_it_is_the_extremes() -> None:
    """2 GPUs at 18 and 19 against one at 10 and 11: from 9/11 to 9.5/10."""
    found = efficiency_of_runs([Fraction(18), Fraction(19)], 2, [Fraction(10), Fraction(11)], 1)
    assert found == Ratio(18.5 / 2 / 10.5, 9 / 11, 9.5 / 10, "range")


@pytest.mark.parametrize(("repeat", "kind"), [(1, None), (3, "range"), (6, "95 %")])
def test_every_point_but_the_baseline_has_one(tmp_path: Path, repeat: int, kind: str | None) -> None:
    """The baseline is 1 by definition; the others' ends lie about them, and are called what they are."""
    rows = three_sizes(tmp_path / "s", repeat).scaling
    assert rows["efficiency_1gpu_interval"].fillna("").tolist() == ["", kind or "", kind or ""]
    assert pd.isna(rows["efficiency_1gpu_low"].iloc[0])
    if kind:
        others = rows.iloc[1:]
        assert (others["efficiency_1gpu_low"] < others["efficiency_1gpu"]).all()
        assert (others["efficiency_1gpu"] < others["efficiency_1gpu_high"]).all()


def test_equal_runs_have_no_width(tmp_path: Path) -> None:
    """Perfect scaling, six times the same: 1 to 1."""
    points = [point(1, gpus) for gpus in (1, 2)]
    study = write_study(tmp_path / "s", points, 6)
    for each in points:
        write_runs(study, each, [7 * MS] * 6)
    row = find(load_study(study)).scaling.iloc[1]
    assert [row[f"efficiency_1gpu{end}"] for end in ("_low", "", "_high")] == [1.0, 1.0, 1.0]


def test_the_table_has_it_in_brackets(tmp_path: Path) -> None:
    """Whole per cent, or a decimal where those would be too close; what is right of a column's text is cut."""
    found = three_sizes(tmp_path / "s", 3)
    lines = terminal_forms(scaling(found.shown, found.shown_apart))[0].splitlines()
    assert [re.findall(r"x +\d+ %(?: \([\d.]+-[\d.]+\))?", line)[:1] for line in lines[1:]] == [
        ["x 100 %"],
        ["x  95 % (94-97)"],
        ["x  88 % (86-89)"],
    ]
    assert all(line == line.rstrip() for line in lines)
    assert (percents(0.3857, 0.3921), percents(0.38, 0.41, "–")) == ("38.6-39.2", "38–41")


def test_the_figure_draws_it(tmp_path: Path) -> None:
    """A line from the low to the high end at each point that has one."""
    found = three_sizes(tmp_path / "s", 6)
    (ax,) = efficiency_figure(found.shown, full_names(found.shown_apart)).axes
    drawn = [path for each in ax.collections if isinstance(each, LineCollection) for path in each.get_segments()]
    ends = {float(at[0, 0]): at[:, 1] / 100 for at in map(np.asarray, drawn) if at[0, 1] != at[1, 1]}
    rows = found.shown.set_index("gpus")
    for gpus in (2, 4):
        row = rows.loc[gpus]
        assert ends[gpus] == pytest.approx([row["efficiency_1gpu_low"], row["efficiency_1gpu_high"]])
    assert ax.get_ylim()[1] > 100 * rows["efficiency_1gpu_high"].max()


@pytest.mark.parametrize("name", ["scaling", "efficiency"])
def test_axes_hold_complete_intervals(tmp_path: Path, name: str) -> None:
    """One run in three takes five times as long: its end of the interval is drawn within the panel."""
    points = [point(1, gpus) for gpus in (1, 2)]
    study = write_study(tmp_path / "s", points, 3)
    for each in points:
        write_runs(study, each, [10 * MS, 10 * MS, 50 * MS])
    found = find(load_study(study))
    (ax,) = point_drawings(found)[0][name]().axes
    spreads = [
        np.asarray(path)[:, 1] for each in ax.collections if isinstance(each, LineCollection) for path in each.get_segments()
    ]
    low, high = ax.get_ylim()
    assert len(spreads) == 2
    assert all(low <= y <= high for ends in spreads for y in ends)


def test_an_efficiency_is_as_exact_as_its_interval() -> None:
    """98 % would lie outside of 96.7 to 97.8 %: rounded as its ends are, it cannot."""
    assert percent_within(0.975, 0.967, 0.978) == "97.5 %"
    assert percent_within(0.975, 0.93, 0.99) == "98 %"
    assert percent_within(0.975, None, None) == "98 %"


@pytest.mark.usefixtures("undrawn")
def test_no_table_shows_an_efficiency_outside_its_interval(tmp_path: Path) -> None:
    """Two runs of 100 ms, then of 102.4 and 103.4: 97.2 %, 96.7 to 97.7."""
    points = {point(1, 1): [100.0, 100.0], point(1, 2): [102.4, 103.4]}
    study = write_study(tmp_path / "s", list(points), repeat=2)
    for each, steps_ms in points.items():
        write_runs(study, each, [round(step_ms * MS) for step_ms in steps_ms], steps=20)
    (result,) = analyze(tmp_path)
    assert "97.2 % (96.7-97.7)" in result.text
    page = (tmp_path / "s/report/index.html").read_text(encoding="utf-8")
    assert "97.2 %" in page
