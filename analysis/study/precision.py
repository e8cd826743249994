"""How well the points of a study are known, for who decides whether they need more runs."""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby

from hpcddp.analysis.runs.intervals import half_width_percent
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import Study


def precision(study: Study) -> dict[str, tuple[int, float | None]]:
    """By label: runs that are compared, and half the width of their median's 95 % interval, % of it; None below six runs.

    Points with a run that is not done, or does not count, are left out, and benchmarks of collectives. Where software or GPUs
    have changed in between, the runs are those of the newest run's kind: others are never pooled with them. HpcddpError before
    the first submission.
    """
    by_label = groupby(load_study(study).runs, key=lambda run: run.label)
    points = {label: list(runs) for label, runs in by_label}
    return {
        label: _of_point(runs)
        for label, runs in points.items()
        if all(run.state == "counts" and run.step_ns is not None for run in runs)
    }


def _of_point(runs: list[Run]) -> tuple[int, float | None]:
    alike = [run for run in runs if (run.env_id, run.gpu) == (runs[-1].env_id, runs[-1].gpu)]
    return len(alike), half_width_percent([run.rate_per_s or Fraction(0) for run in alike])
