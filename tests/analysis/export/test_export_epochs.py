"""What is exported of a training: the loss of every step, and accuracy, losses and rate of every epoch at its last step."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.export.exported import ExportedRun, exported
from hpcddp.core.run_root import Study
from tests.analysis.study.test_accuracy import falling, sized, study
from tests.analysis.study.test_time_to_accuracy import sized as trained
from tests.analysis.study.test_time_to_accuracy import trainings


def only(folder: Path) -> ExportedRun:
    (run,) = exported(Study(folder)).runs
    return run


def test_the_loss_of_every_step_is_exported(tmp_path: Path) -> None:
    """Its mean over ranks, warm-up too; and the accuracy beside its exact count."""
    study(tmp_path / "s", {sized(2): [9_722]}, loss=falling)
    run = only(tmp_path / "s")
    (loss,) = [series for series in run.series if series.name == "loss"]
    assert loss.steps == tuple(range(30))
    assert loss.values == pytest.approx([10.1 - step / 10 for step in range(30)])
    found = {name: run.summary[name] for name in ("accuracy", "eval_correct", "samples_trained", "loss_start", "loss_end")}
    assert found == pytest.approx(
        {"accuracy": 0.9722, "eval_correct": 9722, "samples_trained": 1920, "loss_start": 9.65, "loss_end": 7.65}
    )


def test_every_epoch_is_exported_at_its_last_step(tmp_path: Path) -> None:
    """Two steps an epoch; the first was not evaluated. Times are those of the steps."""
    trainings(tmp_path / "s", {trained(1): [((None, 90, 95), 10.0)]})
    run = only(tmp_path / "s")
    series = {each.name: each for each in run.series}
    assert (series["epoch/accuracy"].steps, series["epoch/accuracy"].values) == ((3, 5), (0.9, 0.95))
    assert (series["epoch/lr"].steps, series["epoch/train_loss"].values) == ((1, 3, 5), (1.0, 1.0, 1.0))
    steps = dict(zip(series["step_s"].steps, series["step_s"].unix_s, strict=True))
    assert series["epoch/accuracy"].unix_s == (steps[3], steps[5])
