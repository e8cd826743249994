"""A stop signal while an epoch is evaluated: the attempt ends at once, and the next one begins with that evaluation."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Point, point_to_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.worker.main import run
from hpcddp.worker.training import evaluate
from tests.worker import forked, given
from tests.worker.test_checkpoint_resume import read
from tests.worker.test_epochs import STEPS, epochs, training, what_was_learned

BATCHES = 7
"""Of a rank's share of the evaluation set; the second rank's last is short."""


def attempt(job: str, spec: dict[str, Any], stopped_in: int | None) -> Any:
    """The second rank is told to stop in the second batch of an evaluation; the other one hears of it from there."""
    os.environ["HPCDDP_JOB"] = job
    real, batches = evaluate._correct_and_loss, 0

    def counted(*arguments: Any) -> Any:
        nonlocal batches
        batches += 1
        if stopped_in and batches == (stopped_in - 1) * BATCHES + 2 and os.environ["SUBMITIT_LOCAL_GLOBALID"] == "1":
            os.kill(os.getpid(), signal.SIGUSR2)
        return real(*arguments)

    vars(evaluate)["_correct_and_loss"] = counted
    return run(spec)


def launch(study: Path, what: Point, job: str, stopped_in: int | None = None) -> Path:
    spec = given.job(study, what)
    outcomes = forked.ranks(study / f"output{job}", what.ranks, attempt, job, spec_to_dict(spec), stopped_in)
    assert not any(outcome.code for outcome in outcomes), "\n".join(outcome.output for outcome in outcomes)
    return spec.attempt_dir(job, 0)


@pytest.mark.dear
@pytest.mark.parametrize(("stopped_in", "steps_left"), [(2, STEPS), (3, 0)])
def test_a_stop_signal_cuts_an_evaluation(tmp_path: Path, stopped_in: int, steps_left: int) -> None:
    """Also the last one, which leaves the next attempt no steps: together they are a run in one piece, and it counts."""
    point = training(epochs=3, evaluate_every=1, resume=True, checkpoint_every_min=0.0)
    cut = launch(tmp_path, point, "7", stopped_in)
    end = read(cut / "end.json")
    assert (end["state"], end["steps"]) == ("interrupted", stopped_in * STEPS)
    assert [row["epoch"] for row in epochs(cut)] == list(range(1, stopped_in))
    last, plain = launch(tmp_path, point, "8"), launch(tmp_path / "plain", point, "7")
    assert what_was_learned(last) == what_was_learned(plain)
    ends = [read(each / "end.json") for each in (last, plain)]
    assert ends[0]["evaluation"] == ends[1]["evaluation"]
    assert sum(each["steps"] for each in ends[0]["history"]) == 3 * STEPS
    assert [rank["rows"] for rank in ends[0]["ranks"]] == [steps_left] * 2
    study = Study(tmp_path)
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": point.label}]})
    write_json(study.point_file(point.label), {"schema": 1, "id": point.id, "point": point_to_dict(point)})
    (run_,) = load_study(study).runs
    assert (run_.state, run_.reason) == ("counts", None)


@pytest.mark.dear
def test_a_target_that_the_cut_evaluation_reaches_ends_the_run(tmp_path: Path) -> None:
    """In an attempt without steps of its own."""
    point = training(epochs=3, evaluate_every=1, resume=True, checkpoint_every_min=0.0, target_accuracy=0.01)
    launch(tmp_path, point, "7", stopped_in=1)
    end = read(launch(tmp_path, point, "8") / "end.json")
    assert (end["state"], end["steps"], end["protocol"]["stopped_by"]) == ("done", STEPS, "target_accuracy")
