"""Accuracy of two studies: at equal samples, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.comparison.compare import Comparison, compare, to_plain
from hpcddp.analysis.comparison.text import to_text
from tests.analysis.study.test_accuracy import falling, sized, study
from tests.analysis.study.test_time_to_accuracy import sized as trained
from tests.analysis.study.test_time_to_accuracy import trainings

SIX = [9_700 + run for run in range(6)]


def against(tmp_path: Path, a: Sequence[int | None], b: Sequence[int | None]) -> Comparison:
    mine = study(tmp_path / "a", {sized(1): a}, loss=falling)
    return compare(mine, study(tmp_path / "b", {sized(1): b}, loss=falling), 0.05)


def accuracy(found: Comparison) -> Any:
    (row,) = to_plain(found)["points"]
    return row["accuracy"]


def test_at_equal_samples_with_its_interval(tmp_path: Path) -> None:
    """0.40 points more, of both sides' exact counts, beside their losses."""
    found = against(tmp_path, SIX, [each + 40 for each in SIX])
    plain = accuracy(found)
    assert (plain["difference"], plain["interval"], plain["why_not"]) == (pytest.approx(0.004), "95 %", None)
    assert plain["low"] <= 0.004 <= plain["high"]
    assert (plain["b"]["correct"], plain["b"]["samples"], plain["b"]["samples_trained"]) == (9_742.5, 10_000, [1_920])
    text = " ".join(to_text(found).split())
    assert "97.02 % (9,702.5 of 10,000) -> 97.42 % (9,742.5 of 10,000), 0.40 points higher (95 %" in text
    assert "each after 1,920 samples; training loss 9.55 to 7.55 -> 9.55 to 7.55 (first and last 10 steps)" in text


def test_one_side_alone_is_not_compared(tmp_path: Path) -> None:
    """Its own accuracy is there all the same."""
    found = against(tmp_path, SIX, [None] * 6)
    assert (accuracy(found)["difference"], accuracy(found)["b"]) == (None, None)
    assert "not compared: only A has runs that were evaluated" in to_text(found)


def test_where_nothing_was_evaluated_nothing_is_said(tmp_path: Path) -> None:
    """Neither in words nor as a reason."""
    found = against(tmp_path, [None], [None])
    assert accuracy(found) is None
    assert "accuracy" not in to_text(found)


def test_other_amounts_of_training_are_not_compared(tmp_path: Path) -> None:
    """Points that differ in how long they are timed are one point, but not one training."""
    mine, theirs = {sized(1, steps=29): SIX}, {sized(1, steps=59): SIX}
    a = study(tmp_path / "a", mine)
    b = study(tmp_path / "b", theirs, steps=59)
    found = compare(a, b, 0.05)
    assert accuracy(found)["difference"] is None
    assert "A trained 1,920 samples, B 3,840 samples; only equal amounts are compared" in " ".join(to_text(found).split())


def test_trainings_that_end_apart_are_compared_where_both_were(tmp_path: Path) -> None:
    """A stops after two epochs at its target, B needs three: both were evaluated after the second, on 128 samples."""
    mine = trainings(tmp_path / "a", {trained(1, target_accuracy=0.9): [((50, 90), 10.0)] * 2})
    theirs = trainings(tmp_path / "b", {trained(1, target_accuracy=0.9): [((50, 80, 95), 10.0)] * 2})
    found = compare(mine, theirs, 0.05)
    plain = accuracy(found)
    assert (plain["difference"], plain["a"]["correct"], plain["b"]["correct"]) == (pytest.approx(-0.1), 900, 800)
    assert (plain["a"]["samples_trained"], plain["b"]["samples_trained"], plain["b"]["loss_end"]) == ([128], [128], None)
    assert "10.00 points lower" in to_text(found)
    assert "each after 128 samples, the last at which all were evaluated" in " ".join(to_text(found).split())
