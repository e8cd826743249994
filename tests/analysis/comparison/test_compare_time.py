"""Time to an accuracy of two studies: at one target that all runs reached, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.comparison.compare import Comparison, compare, to_plain
from hpcddp.analysis.comparison.text import to_text
from hpcddp.analysis.study.epochs import BY_ALL, GIVEN
from tests.analysis.study.test_time_to_accuracy import sized, trainings

Trained = tuple[tuple[int, ...], float]
"""Accuracies of a run's epochs, per cent, and seconds of an epoch."""


def against(tmp_path: Path, a: list[Trained], b: list[Trained], target: float | None = 0.9) -> tuple[Any, str]:
    changes = {} if target is None else {"target_accuracy": target}
    found: Comparison = compare(
        trainings(tmp_path / "a", {sized(1, **changes): a}), trainings(tmp_path / "b", {sized(1, **changes): b}), 0.05
    )
    (row,) = to_plain(found)["points"]
    return row["to_accuracy"], " ".join(to_text(found).split())


def test_the_ratio_of_times_has_the_interval_of_its_runs(tmp_path: Path) -> None:
    """A needs two epochs of 10 s, B three of 5 s: 20 s by 15 s, though samples pass twice as fast."""
    found, text = against(
        tmp_path, [((50, 90), 10 + run / 10) for run in range(6)], [((50, 80, 95), 5 + run / 20) for run in range(6)]
    )
    assert (found["target"], found["target_of"], found["interval"], found["why_not"]) == (0.9, GIVEN, "95 %", None)
    assert found["ratio"] == pytest.approx(20 / 15)
    assert 1.25 < found["low"] <= found["ratio"] <= found["high"] < 1.42
    assert (found["a"]["train_s"], found["b"]["epochs"], found["b"]["reached"]) == (pytest.approx(20.5), 3, 6)
    assert "time to 1 x 1: 90.00 % after 20.5 s (2 epochs) -> 15.4 s (3 epochs): B is there 1.333 times as fast (95 %" in text


def test_without_a_target_it_is_what_all_runs_of_both_reached(tmp_path: Path) -> None:
    """80 of A's runs, 75 of B's worst: 75, which A has after its second epoch and B after its first or third."""
    found, text = against(tmp_path, [((50, 80), 10.0)] * 2, [((75, 90), 10.0), ((50, 60, 75), 10.0)], target=None)
    assert (found["target"], found["target_of"], found["ratio"]) == (0.75, BY_ALL, pytest.approx(1.0))
    assert "75.00 %, the highest that all runs reached, after" in text


def test_a_run_that_did_not_reach_it_says_so_in_place_of_a_ratio(tmp_path: Path) -> None:
    """What it would have taken is not known."""
    found, text = against(tmp_path, [((50, 90), 10.0)] * 2, [((50, 95), 10.0), ((50, 60), 10.0)])
    assert (found["ratio"], found["b"]["reached"], found["b"]["train_s"]) == (None, 1, None)
    assert "not compared: 2 of 2 runs of A and 1 of 2 runs of B reached 90.00 %" in text


def test_one_epoch_is_no_plural(tmp_path: Path) -> None:
    """The median of two runs may be half an epoch more."""
    _, text = against(tmp_path, [((95,), 10.0)] * 2, [((95,), 10.0), ((50, 95), 10.0)])
    assert "90.00 % after 10.0 s (1 epoch) -> 15.0 s (1.5 epochs)" in text
