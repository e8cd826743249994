"""What ranks that step together say of one that left them, in an attempt that took a run up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.worker import training_run
from tests.worker import forked, given
from tests.worker.test_checkpoint_resume import attempt, launch, read, small


def a_step_short(spec: dict[str, Any]) -> Any:
    real = vars(training_run)["train"]

    def train(*about: Any, **how: Any) -> Any:
        trained = real(*about, **how)
        return dataclasses.replace(trained, rows=trained.rows - 1)

    vars(training_run)["train"] = train
    return attempt("8", spec, None, None)


def test_steps_are_counted_as_the_run_does(tmp_path: Path) -> None:
    """A rank that ends a step early is missed in that step of the run, not of the attempt."""
    launch(tmp_path, small(1, steps=12), "7", stop_after=8)
    spec = given.job(tmp_path, small(1, steps=12))
    forked.ranks(tmp_path / "output8", 1, a_step_short, spec_to_dict(spec))
    reason = read(spec.attempt_dir("8", 0) / "end.json")["reason"]
    assert reason.endswith("ended after 11 of 12 steps; the others wait for it in step 11")
