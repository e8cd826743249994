"""`hpcddp submit --until-ci`: how many runs of each point the records so far ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcddp.commands.options import remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcddp.core.run_root import Study
    from hpcddp.study.status import RunState
    from hpcddp.submit.submission_plan import SubmissionPlan


def with_repeats(plan: SubmissionPlan, study: Study, states: Sequence[RunState], percent: float, at_most: int) -> SubmissionPlan:
    """The order with as many runs of each point as its records so far ask for; says how well points are known."""
    from dataclasses import replace

    from hpcddp.analysis.study.precision import precision
    from hpcddp.core.repetitions import how_well, rejected_words, repeats_until

    had: dict[str, int] = {}
    rejected: dict[str, list[int]] = {}
    for state in states:
        had[state.label] = max(state.run, had.get(state.label, 0))
        if state.phase == "done" and state.detail:  # the gates that failed
            rejected.setdefault(state.label, []).append(state.run)
    known = precision(study) if had else {}
    labels = [planned.point.label for planned in plan.points]
    for label in labels:
        if label in rejected:
            remark(rejected_words(label, rejected[label]))
        elif label in had:
            remark(how_well(label, had, known, percent, at_most))
    return replace(plan, more=repeats_until(labels, had, known, percent, at_most), is_cut_at_budget=True)


def is_open(plan: SubmissionPlan, study: Study, until_ci: float | None) -> bool:
    """Whether medians are less well known than was asked for: --max-repeat or a rejected run ended it."""
    if until_ci is None:
        return False

    from hpcddp.analysis.study.precision import precision
    from hpcddp.core.repetitions import open_points

    return bool(open_points([planned.point.label for planned in plan.points], precision(study), until_ci))
