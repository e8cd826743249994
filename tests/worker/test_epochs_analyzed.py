"""What real ranks record of a training is what analysis reads: every epoch, the accuracy at the end, the time to the target."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from tests.analysis.synthetic import write_study
from tests.worker.test_checkpoint_resume import launch
from tests.worker.test_epochs import BATCH, EVALUATED, STEPS, epochs, training


@pytest.mark.dear
def test_a_training_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    """Two ranks, three epochs, evaluated after the second and the last; losses are those of the step rows."""
    point = training(epochs=3, evaluate_every=2, target_accuracy=0.99)
    study = write_study(tmp_path, [point])
    recorded = epochs(launch(tmp_path, point, "7"))
    records = load_study(study)
    (run,) = records.runs
    assert (run.state, run.reason) == ("counts", None)
    assert run.epochs is not None
    assert [(each.epoch, each.step, each.correct) for each in run.epochs] == [
        (row["epoch"], row["step"], row["correct"]) for row in recorded
    ]
    assert (run.samples_trained, run.eval_samples, run.eval_correct) == (3 * STEPS * BATCH, EVALUATED, recorded[-1]["correct"])
    assert run.losses is not None
    assert run.losses.steps == 10
    assert run.losses.start == pytest.approx(run.loss_first, rel=0.2)
    found = find(records)
    assert (found.loaders["loader_samples_per_s"] > 0).tolist() == [True]
    correct = recorded[-1]["correct"]
    assert correct is not None
    assert list(found.epochs["accuracy"].dropna())[-1] == float(Fraction(correct, EVALUATED))
    assert found.targets.iloc[0]["reached"] == int(Fraction(correct, EVALUATED) >= Fraction("0.99"))
    assert any(f"({correct} of {EVALUATED})" in sentence for sentence in found.sentences)
