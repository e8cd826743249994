from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from hpcddp.analysis import How, StudyResult, analyze
from hpcddp.analysis.figures.figures import point_drawings
from hpcddp.analysis.figures.scaling import efficiency_figure
from hpcddp.analysis.proposal.proposal import propose
from hpcddp.analysis.report.table import terminal_forms
from hpcddp.analysis.report.tables import scaling
from hpcddp.analysis.study.effects import Ratio
from hpcddp.analysis.study.frames import energy_kwh, unit_hours
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import efficiency, efficiency_of_runs, outliers, speedup
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.util.wording import percent_within, percents, time_words
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Data, Point
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Recorded, point, write_marconi100, write_run, write_runs, write_study


def test_efficiency_is_speedup_by_the_ratio_of_gpus() -> None:
    """64 GPUs at 1000 against 4 at 100: 10 times on 16 times as many. The range: 2 at 18 and 19 against one at 10 and 11."""
    assert speedup(Fraction(9217), Fraction(370)) == Fraction(9217, 370)
    assert efficiency(Fraction(1000), 64, Fraction(100), 4) == Fraction(10, 16)
    assert efficiency(Fraction(1, 3), 3, Fraction(1, 3), 3) == 1
    found = efficiency_of_runs([Fraction(18), Fraction(19)], 2, [Fraction(10), Fraction(11)], 1)
    assert found == Ratio(18.5 / 2 / 10.5, 9 / 11, 9.5 / 10, "range")


def test_the_parts_are_those_of_the_middle_run(tmp_path: Path) -> None:
    """They add up to the median step: of three runs that wait for 10, 20 and 30 % of theirs, 22 ms of 110."""
    what = point(1, 1)
    study = write_study(tmp_path / "study", [what], repeat=3)
    for run, (step_ms, waits) in enumerate([(120, 0.3), (100, 0.1), (110, 0.2)], start=1):
        shares = {"data_wait": waits, "forward": 1 - waits}
        write_run(study, what, Recorded(step_ns=step_ms * MS, shares=shares, job=str(100 + run)), run)
    records = load_study(study)
    (row,) = [row for _, row in find(records).shown.iterrows()]
    assert (row["step_s"], row["data_wait_s"]) == (pytest.approx(0.110), pytest.approx(0.022))


def test_rates_are_of_runs_without_the_communication_hook(tmp_path: Path) -> None:
    plain, hooked = point(1, 2), point(1, 2, comm="on")
    study = write_study(tmp_path / "study", [plain, hooked])
    write_run(study, plain, Recorded(step_ns=100 * MS))
    write_run(study, hooked, Recorded(step_ns=125 * MS))
    (row,) = [row for _, row in find(load_study(study)).shown.iterrows()]
    assert (row["step_s"], row["step_hook_s"]) == (pytest.approx(0.100), pytest.approx(0.125))
    assert row["samples_per_s"] == pytest.approx(plain.global_batch / 0.100)


def steps_of(folder: Path, steps_ms: Mapping[int, Sequence[float]]) -> Findings:
    """Of a study of so many GPUs whose runs have such steps."""
    points = {point(1, gpus): times for gpus, times in steps_ms.items()}
    study = write_study(folder, list(points), max(map(len, points.values())))
    for each, times in points.items():
        write_runs(study, each, [round(step_ms * MS) for step_ms in times], steps=20)
    return find(load_study(study))


def three_sizes(folder: Path, repeat: int) -> Findings:
    """1, 2 and 4 GPUs whose runs differ by some per cent."""
    return steps_of(folder, {gpus: [100 + 5 * gpus + run for run in range(repeat)] for gpus in (1, 2, 4)})


@pytest.mark.parametrize(("repeat", "kind"), [(1, None), (3, "range"), (6, "95 %")])
def test_every_point_but_the_baseline_has_an_interval(tmp_path: Path, repeat: int, kind: str | None) -> None:
    rows = three_sizes(tmp_path / "s", repeat).scaling
    assert rows["efficiency_1gpu_interval"].fillna("").tolist() == ["", kind or "", kind or ""]
    assert pd.isna(rows["efficiency_1gpu_low"].iloc[0])
    if kind:
        others = rows.iloc[1:]
        assert (others["efficiency_1gpu_low"] < others["efficiency_1gpu"]).all()
        assert (others["efficiency_1gpu"] < others["efficiency_1gpu_high"]).all()


def test_equal_runs_have_no_width(tmp_path: Path) -> None:
    row = steps_of(tmp_path / "s", {1: [7.0] * 6, 2: [7.0] * 6}).scaling.iloc[1]
    assert [row[f"efficiency_1gpu{end}"] for end in ("_low", "", "_high")] == [1.0, 1.0, 1.0]


def test_the_table_has_it_in_brackets(tmp_path: Path) -> None:
    found = three_sizes(tmp_path / "s", 3)
    lines = terminal_forms(scaling(found.shown, found.shown_apart))[0].splitlines()
    shown = [re.findall(r"x +\d+ %(?: \([\d.]+-[\d.]+\))?", line)[:1] for line in lines[1:]]
    assert shown == [["x 100 %"], ["x  95 % (94-97)"], ["x  88 % (86-89)"]]
    assert all(line == line.rstrip() for line in lines)
    assert (percents(0.3857, 0.3921), percents(0.38, 0.41, "–")) == ("38.6-39.2", "38–41")


def drawn_spreads(ax: Axes) -> list[Any]:
    lines = [path for each in ax.collections if isinstance(each, LineCollection) for path in each.get_segments()]
    return [each for each in map(np.asarray, lines) if each[0, 1] != each[1, 1]]


def test_the_figure_draws_it(tmp_path: Path) -> None:
    found = three_sizes(tmp_path / "s", 6)
    (ax,) = efficiency_figure(found.shown, full_names(found.shown_apart), found.runs).axes
    ends = {float(at[0, 0]): at[:, 1] / 100 for at in drawn_spreads(ax)}
    rows = found.shown.set_index("gpus")
    for gpus in (2, 4):
        row = rows.loc[gpus]
        assert ends[gpus] == pytest.approx([row["efficiency_1gpu_low"], row["efficiency_1gpu_high"]])
    assert ax.get_ylim()[1] > 100 * rows["efficiency_1gpu_high"].max()


@pytest.mark.parametrize("name", ["scaling", "efficiency"])
@pytest.mark.parametrize(("runs", "bars"), [(5, 0), (6, 2)])
def test_below_six_runs_the_runs_are_drawn_and_within_the_axis(tmp_path: Path, name: str, runs: int, bars: int) -> None:
    """One of them five times as slow. From six on there is the interval; an efficiency has one but the baseline's own."""
    steps_ms = [10.0] * (runs - 1) + [50.0]
    figure = point_drawings(steps_of(tmp_path / "s", {1: steps_ms, 2: steps_ms}))[0][name]()
    (ax,) = figure.axes
    low, high = ax.get_ylim()
    spreads = drawn_spreads(ax)
    dots = [line for line in ax.lines if line.get_marker() == "o" and line.get_markersize() < 3]
    assert len(spreads) == (bars if name == "scaling" else bars // 2)
    assert len(dots) == (0 if bars else 2 * runs)
    assert all(low <= y <= high for each in [*spreads, *(np.asarray(dot.get_xydata()) for dot in dots)] for y in each[:, 1])
    (legend,) = figure.legends
    assert legend.get_texts()[0].get_text().startswith("Bars: 95 % CI" if bars else "Dots: runs")


def test_no_table_shows_an_efficiency_outside_its_interval(tmp_path: Path) -> None:
    """Two runs of 100 ms, then of 102.4 and 103.4: 97.2 %, 96.7 to 97.7, as exact as its ends: 97 or 98 would lie outside."""
    steps_of(tmp_path / "s", {1: [100.0, 100.0], 2: [102.4, 103.4]})
    (result,) = analyze(tmp_path)
    assert "97.2 % (96.7-97.7)" in result.text
    assert "97.2 %" in (tmp_path / "s/report/index.html").read_text(encoding="utf-8")
    assert percent_within(0.975, 0.967, 0.978) == "97.5 %"
    assert percent_within(0.975, 0.93, 0.99) == "98 %"
    assert percent_within(0.975, None, None) == "98 %"


CLOSE = [98.0, 99.0, 100.0, 100.5, 101.0, 102.0]


def test_a_far_run_by_hand() -> None:
    """Deviations from 100.25 are 2.25, 1.25, 0.25, 0.25, 0.75 and 11.75: their median 1 is 1.48 scaled, five are 7.4."""
    assert outliers([*CLOSE[:5], 112.0]) == [5]
    assert outliers([*CLOSE[:5], 107.0]) == outliers(CLOSE) == outliers([*CLOSE[:4], 112.0]) == []
    assert outliers([100.0] * 6 + [101.9]) == []
    assert outliers([100.0] * 6 + [102.1]) == [6]


@pytest.mark.parametrize("runs", [6, 10])
def test_few_clean_points_have_one(runs: int) -> None:
    """Runs that differ by 3 % at random: a run is named in less than 8 % of 1000 points."""
    points = np.random.default_rng(runs).normal(100, 3, (1000, runs))
    assert sum(bool(outliers(list(each))) for each in points) < 80


def test_a_far_run_is_told_and_counts(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1)], repeat=7)
    write_runs(study, point(1, 1), [step * MS for step in (100, 101, 99, 100, 200, 100, 101)])
    (result,) = analyze(tmp_path)
    label = point(1, 1).label
    note = f"note: r5 of {label} is 50.0 % slower than its point's median: far from the others, counted all the same"
    assert note in " ".join(result.text.split())
    assert [(row["run"], row["percent"]) for row in result.plain["outliers"]] == [(5, pytest.approx(-50.0))]
    assert result.plain["points"][0]["n"] == 7
    assert (tmp_path / "s/report/outliers.csv").is_file()


PLAIN = How()


def analyzed(folder: Path, each: Point, step_ns: Sequence[int] = (MS,), how: How = PLAIN, **changes: Any) -> StudyResult:
    """A study of a point whose runs have such steps."""
    study = write_study(folder / "s", [each], len(step_ns))
    write_runs(study, each, step_ns, **changes)
    return analyze(folder, how=how)[0]


EIGHT = point(2, 4)
"""32 x 8 samples in 100 ms: 2560 samples/s."""


def test_costs_are_in_the_report(tmp_path: Path) -> None:
    """256 000 samples as launch.json tells, at 2560 samples/s: 100 s, 200 node seconds, 800 GPU seconds, 128 kJ."""
    telemetry = {"telemetry": {"energy_j_per_1000_samples": 500}}
    result = analyzed(tmp_path, EIGHT, [100 * MS], launch={"data": {"samples": 256_000}}, end=telemetry)
    (row,) = result.plain["points"]
    found = [row[name] for name in ("epoch_samples", "epoch_s", "node_h_per_epoch", "gpu_h_per_epoch", "gpu_kwh_per_epoch")]
    assert found == pytest.approx([256_000, 100, 200 / 3600, 800 / 3600, 128e3 / 3.6e6])
    assert "epoch  node h\n" in result.text
    assert " 1:40  0.0556" in result.text
    (in_file,) = pd.read_csv(tmp_path / "s/report/scaling.csv").to_dict(orient="records")
    assert in_file["gpu_h_per_epoch"] == pytest.approx(800 / 3600)


def test_hours_count_whole_units() -> None:
    """4 nodes for 15 minutes: one node hour. 3600 J per 1000 samples, 2 million samples: 7.2 MJ = 2 kWh."""
    assert unit_hours(4, 900.0) == 1
    assert energy_kwh(2_000_000, 3600.0) == 2


@pytest.mark.dear
def test_a_slow_run_is_billed(tmp_path: Path) -> None:
    """Four runs of 100 ms and one of 115: the median rate is that of 100 ms, an epoch of 100 s takes 103 s on average."""
    step_ns = [100 * MS] * 4 + [115 * MS]
    result = analyzed(tmp_path, EIGHT, step_ns, How(train_epochs=10), launch={"data": {"samples": 256_000}})
    (row,) = result.plain["points"]
    assert row["samples_per_s"] == pytest.approx(2560)
    found = [row[name] for name in ("epoch_s", "epoch_s_low", "epoch_s_high", "node_h_per_epoch", "gpu_h_to_train")]
    assert found == pytest.approx([103, 100, 115, 206 / 3600, 8240 / 3600])
    costs = propose(Study(tmp_path / "s"), nodes=2, epochs=10).costs
    assert costs is not None
    hours = costs.node_h
    assert (hours.value, hours.low, hours.high) == pytest.approx((206 / 3600, 200 / 3600, 230 / 3600))


def asking(study: Study, train_epochs: int) -> Path:
    """The study's folder; its sweep now says how many epochs a training takes."""
    described = json.loads(study.study_file.read_bytes())
    write_json(study.study_file, {**described, "sweep": {**described["sweep"], "train_epochs": train_epochs}})
    return study.folder


@pytest.mark.dear
def test_a_training_is_so_many_epochs(tmp_path: Path) -> None:
    """90 x 139 s on 16 nodes are 3:28:30, 55.6 node hours and 222 GPU hours; on one GPU 86:39:00. Each with its runs' folder."""
    study = write_marconi100(tmp_path / "m100", repeat=3)
    (result,) = analyze(asking(study, 90))
    _, block = result.text.split("  a training of 90 epochs: training alone, without start, evaluation and checkpoints (means)\n")
    head, first, *_, last = block.split("\n\n")[0].splitlines()
    assert head.split() == ["nodes", "x", "GPUs", "n", "time", "(range)", "node", "h", "GPU", "h", "runs", "in"]
    small, large = (point(*layout, work="epoch").label for layout in ((1, 1), (16, 4)))
    assert first.split() == ["1", "x", "1", "3", "86:39:00", "(86:18:12-86:59:48)", "86.7", "86.7", small]
    assert last.split() == ["16", "x", "4", "3", "3:28:30", "(3:27:40-3:29:20)", "55.6", "222", large]
    row = result.plain["points"][-1]
    found = [row[name] for name in ("train_epochs", "train_s", "node_h_to_train", "gpu_h_to_train", "gpu_kwh_to_train")]
    hours = 90 * 139 / 3600
    assert found == [90, *(pytest.approx(value, rel=1e-6) for value in (3600 * hours, 16 * hours, 64 * hours)), None]
    assert "What a training costs" in (study.folder / "report/index.html").read_text()
    assert (study.folder / "report/training.tex").is_file()


def test_epochs_that_are_asked_for_stand_above_the_sweeps(tmp_path: Path) -> None:
    plain = analyzed(tmp_path, point(1, 1), [100 * MS], launch={"data": {"samples": 3_200_000}})
    assert plain.plain["points"][0]["train_s"] is None
    assert "a training of" not in plain.text
    (result,) = analyze(asking(Study(tmp_path / "s"), 90), how=How(train_epochs=1))
    assert result.plain["points"][0]["train_s"] == pytest.approx(10_000)
    assert "a training of 1 epoch:" in result.text


def test_the_catalogue_knows_what_old_records_do_not_tell(tmp_path: Path) -> None:
    """ImageNet's 1 281 167; energy is unknown, and CPUs have no GPU hours."""
    (row,) = analyzed(tmp_path, EIGHT, [100 * MS]).plain["points"]
    assert row["epoch_s"] == pytest.approx(1_281_167 / 2560)
    assert row["gpu_kwh_per_epoch"] is None
    (row,) = analyzed(tmp_path / "cpu", point(1, 2, device="cpu"), gpu=None).plain["points"]
    assert row["gpu_h_per_epoch"] is None
    assert row["node_h_per_epoch"] == pytest.approx(1_281_167 / 64_000 / 3600)


@pytest.mark.parametrize("what", [{"data": Data(name="mine:data")}, {"input": "io"}], ids=["unknown size", "no training"])
def test_without_known_data_and_training_there_is_no_epoch(tmp_path: Path, what: dict[str, Any]) -> None:
    result = analyzed(tmp_path, point(1, 1, **what))
    assert result.plain["points"][0]["epoch_s"] is None
    assert "node h" not in result.text
    (result,) = analyze(tmp_path, how=How(train_epochs=90))
    assert (result.plain["points"][0]["train_epochs"], "a training of" in result.text) == (None, False)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.500 s"), (59.9, "59.9 s"), (59.96, "1:00"), (3466, "57:46"), (3599.6, "1:00:00"), (90061, "25:01:01")],
)
def test_durations(seconds: float, text: str) -> None:
    assert time_words(seconds) == text


POINTS = [point(1, 1), point(1, 2), point(2, 2), point(4, 2)]
RUNS = 6
STEPS = 5

TIMES = st.lists(st.integers(10**6, 10**8), min_size=RUNS * STEPS, max_size=RUNS * STEPS)


def recorded(times: Sequence[int], order: Sequence[int]) -> Recorded:
    """Steps that last so long; of the ranks one is slowest, the others each a bit faster, in that order."""
    return Recorded(step_ns=lambda rank, step: times[step - 1] + 1000 * order[rank], steps=STEPS)


def findings(times: list[int], shuffle: Random) -> Findings:
    """The study with its files written, its runs numbered and its ranks' times dealt out in an order of `shuffle`."""
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(Path(folder) / "s", shuffle.sample(POINTS, len(POINTS)), repeat=RUNS)
        for each in shuffle.sample(POINTS, len(POINTS)):
            for run, number in enumerate(shuffle.sample(range(1, RUNS + 1), RUNS)):
                write_run(study, each, recorded(times[run * STEPS :], shuffle.sample(range(each.ranks), each.ranks)), number)
        return find(load_study(study))


@pytest.mark.dear
@settings(max_examples=2, deadline=None)
@given(times=TIMES, shuffle=st.randoms(use_true_random=False))
def test_files_ranks_and_runs_may_come_in_any_order(times: list[int], shuffle: Random) -> None:
    """Points, intervals, parts of the step, laws and what they imply are the same to the last bit."""
    first, second = findings(times, Random(0)), findings(times, shuffle)
    assert second.scaling.equals(first.scaling)
    assert second.laws.equals(first.laws)
    assert second.implied == first.implied
    assert sorted(second.outliers["percent"]) == sorted(first.outliers["percent"])
