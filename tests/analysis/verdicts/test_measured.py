"""Verdicts name the value of a key that the study itself found to be faster, and the runs that show it."""

from __future__ import annotations

from pathlib import Path

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import find
from tests.analysis.synthetic import MS, point, write_runs, write_study


def input_bound(folder: Path, runs: int) -> list[Verdict]:
    """Of a study with one, four and eight workers: a step of 400, 110 and 108 ms, of which the first waits for data."""
    points = {point(1, 4, loader_workers_per_rank=workers): ms for workers, ms in ((1, 400), (4, 110), (8, 108))}
    study = write_study(folder, list(points), runs)
    for each, ms in points.items():
        shares = {"data_wait": 0.6 if ms == 400 else 0.02, "forward": 0.1, "backward": 0.2}
        write_runs(study, each, [ms * MS + run * MS // 4 for run in range(runs)], shares=shares, steps=20)
    return [verdict for verdict in find(load_study(study)).verdicts if verdict.name == "input-bound"]


def test_the_value_that_was_measured_is_the_advice(tmp_path: Path) -> None:
    """Four, where more stops paying, not eight; with the gain, its interval, and its runs."""
    (verdict,) = input_bound(tmp_path / "s", 6)
    assert verdict.advice.startswith("`--set workload.loader_workers_per_rank=4`: at 1x4 it is 3.6")
    assert " times (95 % 3." in verdict.advice
    assert f"(runs r1-r6 of {point(1, 4, loader_workers_per_rank=4).label})" in verdict.advice


def test_a_loader_that_was_timed_by_itself_is_not_timed_again(tmp_path: Path) -> None:
    """Its rate stands in the evidence; the advice is what is still to be measured."""
    points = {point(1, 4, input=given): share for given, share in (("full", 0.4), ("io", 0.1))}
    study = write_study(tmp_path / "s", list(points))
    for each, share in points.items():
        write_runs(study, each, [100 * MS], shares={"data_wait": share, "forward": 0.1}, steps=20)
    (verdict,) = [verdict for verdict in find(load_study(study)).verdicts if verdict.name == "input-bound"]
    assert "the loader alone reaches" in verdict.evidence
    assert "`hpcddp init loaders`" in verdict.advice
    assert "measure.input" not in verdict.advice


def test_one_run_each_is_no_ground_for_advice(tmp_path: Path) -> None:
    """Then the verdict says what to measure, as where no such runs are."""
    (verdict,) = input_bound(tmp_path / "s", 1)
    assert "loader_workers_per_rank=4" not in verdict.advice
