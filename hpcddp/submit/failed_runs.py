"""`hpcddp submit --failed`: only what failed is submitted again, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcddp.core.run_root import run_ranges
from hpcddp.core.text import count
from hpcddp.study.status import RunState
from hpcddp.study.status_text import failed_lines
from hpcddp.submit.pending import PendingRuns
from hpcddp.submit.submission_plan import SubmissionPlan


def with_failed_repeats(plan: SubmissionPlan, states: Sequence[RunState]) -> SubmissionPlan:
    """The plan with as many runs of each point as hold all that failed: --until-ci may have added some."""
    failed = [state for state in states if state.phase == "failed" and state.in_sweep]
    return replace(plan, more={state.label: state.run for state in sorted(failed, key=lambda state: state.run)})


def reasons_text(pending: PendingRuns) -> str:
    """Why the runs to be submitted failed, as `status` has it; empty where none did."""
    failed = {point.label for point, _ in pending.runs}
    return "\n".join(failed_lines([state for state in pending.states if state.label in failed and state.in_sweep]))


def none_failed_words(pending: PendingRuns) -> str:
    """Where no run failed: that, and how what is missing or was rejected is measured."""
    parts = ["no run failed"]
    if pending.missing:
        number = len(pending.missing)
        parts.append(
            f"{count(number, 'run')} {'is' if number == 1 else 'are'} missing: submit without --failed for {_them(number)}"
        )
    labels = {planned.point.label for planned in pending.plan.points}
    if rejected := [state for state in pending.states if state.phase == "done" and state.detail and state.label in labels]:
        runs = run_ranges(state.key for state in rejected)
        parts.append(f"rejected: {runs}; to measure {_them(len(rejected))} again, remove the run's folder, then submit")
    return "\n".join(parts)


def _them(number: int) -> str:
    return "it" if number == 1 else "them"
