"""Two studies side by side: accuracy and the time to one, at equal terms or not at all; and what a key changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.comparison.compare import StudyComparison, compare_studies, compared_plain
from hpcddp.analysis.comparison.text import compared_text
from hpcddp.analysis.study.accuracy import BY_ALL, GIVEN
from hpcddp.core.run_root import Study
from tests.analysis.study.test_accuracy import falling, sized, study, trainings
from tests.analysis.study.test_accuracy import training as trained
from tests.analysis.synthetic import MS, point, write_runs, write_study

SIX = [9_700 + run for run in range(6)]


def accuracies_against(tmp_path: Path, a: Sequence[int | None], b: Sequence[int | None]) -> StudyComparison:
    mine = study(tmp_path / "a", {sized(1): a}, loss=falling)
    return compare_studies(mine, study(tmp_path / "b", {sized(1): b}, loss=falling), 0.05)


def accuracy(found: StudyComparison) -> Any:
    (row,) = compared_plain(found)["points"]
    return row["accuracy"]


def test_at_equal_samples_with_its_interval(tmp_path: Path) -> None:
    """0.40 points more, of both sides' exact counts, beside their losses."""
    found = accuracies_against(tmp_path, SIX, [each + 40 for each in SIX])
    plain = accuracy(found)
    assert (plain["difference"], plain["interval"], plain["why_not"]) == (pytest.approx(0.004), "95 %", None)
    assert plain["low"] <= 0.004 <= plain["high"]
    assert (plain["b"]["correct"], plain["b"]["samples"], plain["b"]["samples_trained"]) == (9_742.5, 10_000, [1_920])
    text = " ".join(compared_text(found).split())
    assert "97.02 % (9,702.5 of 10,000) -> 97.42 % (9,742.5 of 10,000), 0.40 points higher (95 %" in text
    assert "each after 1,920 samples; training loss 9.55 to 7.55 -> 9.55 to 7.55 (first and last 10 steps)" in text


def test_one_side_alone_is_not_compared(tmp_path: Path) -> None:
    """Its own accuracy is there all the same."""
    found = accuracies_against(tmp_path, SIX, [None] * 6)
    assert (accuracy(found)["difference"], accuracy(found)["b"]) == (None, None)
    assert "not compared: only A has runs that were evaluated" in compared_text(found)


def test_where_nothing_was_evaluated_nothing_is_said(tmp_path: Path) -> None:
    """Neither in words nor as a reason."""
    found = accuracies_against(tmp_path, [None], [None])
    assert accuracy(found) is None
    assert "accuracy" not in compared_text(found)


def test_other_amounts_of_training_are_not_compared(tmp_path: Path) -> None:
    """Points that differ in how long they are timed are one point, but not one training."""
    mine, theirs = {sized(1, steps=29): SIX}, {sized(1, steps=59): SIX}
    a = study(tmp_path / "a", mine)
    b = study(tmp_path / "b", theirs, steps=59)
    found = compare_studies(a, b, 0.05)
    assert accuracy(found)["difference"] is None
    assert "A trained 1,920 samples, B 3,840 samples; only equal amounts are compared" in " ".join(compared_text(found).split())


def test_trainings_that_end_apart_are_compared_where_both_were(tmp_path: Path) -> None:
    """A stops after two epochs at its target, B needs three: both were evaluated after the second, on 128 samples."""
    mine = trainings(tmp_path / "a", {trained(1, target_accuracy=0.9): [((50, 90), 10.0)] * 2})
    theirs = trainings(tmp_path / "b", {trained(1, target_accuracy=0.9): [((50, 80, 95), 10.0)] * 2})
    found = compare_studies(mine, theirs, 0.05)
    plain = accuracy(found)
    assert (plain["difference"], plain["a"]["correct"], plain["b"]["correct"]) == (pytest.approx(-0.1), 900, 800)
    assert (plain["a"]["samples_trained"], plain["b"]["samples_trained"], plain["b"]["loss_end"]) == ([128], [128], None)
    assert "10.00 points lower" in compared_text(found)
    assert "each after 128 samples, the last at which all were evaluated" in " ".join(compared_text(found).split())


Trained = tuple[tuple[int, ...], float]
"""Accuracies of a run's epochs, per cent, and seconds of an epoch."""


def times_against(tmp_path: Path, a: list[Trained], b: list[Trained], target: float | None = 0.9) -> tuple[Any, str]:
    changes = {} if target is None else {"target_accuracy": target}
    found: StudyComparison = compare_studies(
        trainings(tmp_path / "a", {trained(1, **changes): a}), trainings(tmp_path / "b", {trained(1, **changes): b}), 0.05
    )
    (row,) = compared_plain(found)["points"]
    return row["to_accuracy"], " ".join(compared_text(found).split())


def test_the_ratio_of_times_has_the_interval_of_its_runs(tmp_path: Path) -> None:
    """A needs two epochs of 10 s, B three of 5 s: 20 s by 15 s, though samples pass twice as fast."""
    found, text = times_against(
        tmp_path, [((50, 90), 10 + run / 10) for run in range(6)], [((50, 80, 95), 5 + run / 20) for run in range(6)]
    )
    assert (found["target"], found["target_of"], found["interval"], found["why_not"]) == (0.9, GIVEN, "95 %", None)
    assert found["ratio"] == pytest.approx(20 / 15)
    assert 1.25 < found["low"] <= found["ratio"] <= found["high"] < 1.42
    assert (found["a"]["train_s"], found["b"]["epochs"], found["b"]["reached"]) == (pytest.approx(20.5), 3, 6)
    assert "time to 1 x 1: 90.00 % after 20.5 s (2 epochs) -> 15.4 s (3 epochs): B is there 1.333 times as fast (95 %" in text


def test_without_a_target_it_is_what_all_runs_of_both_reached(tmp_path: Path) -> None:
    """80 of A's runs, 75 of B's worst: 75, which A has after its second epoch and B after its first or third."""
    found, text = times_against(tmp_path, [((50, 80), 10.0)] * 2, [((75, 90), 10.0), ((50, 60, 75), 10.0)], target=None)
    assert (found["target"], found["target_of"], found["ratio"]) == (0.75, BY_ALL, pytest.approx(1.0))
    assert "75.00 %, the highest that all runs reached, after" in text


def test_a_run_that_did_not_reach_it_says_so_in_place_of_a_ratio(tmp_path: Path) -> None:
    """What it would have taken is not known."""
    found, text = times_against(tmp_path, [((50, 90), 10.0)] * 2, [((50, 95), 10.0), ((50, 60), 10.0)])
    assert (found["ratio"], found["b"]["reached"], found["b"]["train_s"]) == (None, 1, None)
    assert "not compared: 2 of 2 runs of A and 1 of 2 runs of B reached 90.00 %" in text


def test_one_epoch_is_no_plural(tmp_path: Path) -> None:
    """The median of two runs may be half an epoch more."""
    _, text = times_against(tmp_path, [((95,), 10.0)] * 2, [((95,), 10.0), ((50, 95), 10.0)])
    assert "90.00 % after 10.0 s (1 epoch) -> 15.0 s (1.5 epochs)" in text


def workers_study(folder: Path, step_ms: dict[int, float], runs: int = 6) -> Study:
    """A step that long with so many loader workers, 0.2 % longer from run to run."""
    points = {point(1, 4, loader_workers_per_rank=workers): ms for workers, ms in step_ms.items()}
    study = write_study(folder, list(points))
    for each, ms in points.items():
        write_runs(study, each, [int(ms * (1 + 0.002 * run) * MS) for run in range(runs)])
    return study


def compared(folder: Path, a: dict[int, float], b: dict[int, float], runs: int = 6) -> StudyComparison:
    return compare_studies(workers_study(folder / "a", a, runs), workers_study(folder / "b", b, runs), 0.05)


@pytest.mark.dear
def test_an_effect_that_differs_is_said(tmp_path: Path) -> None:
    """Eight workers are twice as fast as two in A, and no faster in B, whose base is read as A's."""
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 100, 8: 100})
    (effect,) = compared_plain(found)["effects"]
    assert (effect["value"], effect["base"]) == ("8", "2")
    assert (effect["key"], effect["where"], effect["differs"]) == ("workload.loader_workers_per_rank", "1x4", True)
    assert (effect["a"]["ratio"], effect["b"]["ratio"]) == (pytest.approx(2.0), pytest.approx(1.0))
    assert "effects   at 1x4, workers 8 is 2.00 (95 % " in compared_text(found)


def test_an_effect_that_is_the_same_is_in_the_json_alone(tmp_path: Path) -> None:
    """Also where one study is slower throughout."""
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 120, 8: 60})
    assert [effect["differs"] for effect in compared_plain(found)["effects"]] == [False]
    assert "effects" not in compared_text(found)


def test_a_single_run_shows_no_difference(tmp_path: Path) -> None:
    """It has no range."""
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 100, 8: 100}, runs=1)
    assert [effect["differs"] for effect in compared_plain(found)["effects"]] == [False]


def test_a_key_that_one_study_did_not_vary_has_no_effect_in_both(tmp_path: Path) -> None:
    """Nothing is said."""
    assert compared(tmp_path, {2: 100, 8: 50}, {2: 100}).effects == []
