"""Runs a loop in ranks of forked, and reads the records that it left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis.records.json_files import read_training_end
from hpcddp.analysis.records.steps import COLUMNS, rank_results, step_tables
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import StudyRecords, load_study
from hpcddp.core.records import PARTS
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


def timed_parts_s(folder: Path, *, longest: bool = False) -> dict[str, float]:
    """Of the one run that `measured` left there, on its first rank over steps that count: each part's median, or its longest.

    What is unknown is left out.
    """
    (attempt,) = study_at(folder / "runs").folder.glob("*/r1/*")
    end = read_training_end(attempt)
    (rows, *_) = step_tables(attempt, rank_results(end, len(end.ranks)), COLUMNS, [])
    timed = {part: rows[f"{part}_ns"][rows["flags"] == 0] for part in PARTS}
    of_steps = np.max if longest else np.median
    return {part: float(of_steps(times)) / 1e9 for part, times in timed.items() if np.isfinite(times).any()}
