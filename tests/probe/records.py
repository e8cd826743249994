"""Runs a loop in ranks of forked, and reads the records that it left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import StudyRecords, load_study
from tests.probe.loops import study_at
from tests.worker import forked


def measured(folder: Path, world: int, function: Callable[..., Any], *arguments: Any) -> StudyRecords:
    """Runs the function in so many ranks, and reads the study that it left."""
    forked.values(folder / "output", world, with_runs, folder / "runs", function, *arguments)
    return load_study(study_at(folder / "runs"))


def with_runs(runs: Path, function: Callable[..., Any], *arguments: Any) -> None:
    """Calls it where measurements go there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCDDP_RUNS", str(runs))
        function(*arguments)


def only(found: StudyRecords) -> Run:
    """Its one run."""
    (run,) = found.runs
    return run


def parts_of(run: Run) -> set[str]:
    """Parts of the step that took time."""
    return {name for name, mean in (run.part_ns or {}).items() if mean}
