"""Which runs of a plan are still to be submitted, by what became of those submitted earlier; and `--failed`, why they failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcddp.core.point import Point
from hpcddp.core.run_root import RunKey, Study, run_ranges
from hpcddp.core.text import count
from hpcddp.study.status import RunState
from hpcddp.study.status_text import run_lines
from hpcddp.submit.budget import Account, account_if_limited, affordable
from hpcddp.submit.submission_plan import SubmissionPlan


@dataclass(frozen=True, kw_only=True)
class PendingRuns:
    """What a plan has still to submit, and the state of the study that this follows from."""

    study: Study
    plan: SubmissionPlan
    states: Sequence[RunState]
    account: Account | None
    """None where the study has no budget."""
    runs: Sequence[tuple[Point, int]]
    missing: Sequence[tuple[Point, int]]
    """Runs that are missing and stay so, as only those that failed are to be submitted."""
    unknown: Sequence[RunState]
    """Runs of whose jobs nobody says what became of them: they may wait or run, and are not submitted again."""

    @property
    def next_runs(self) -> Sequence[tuple[Point, int]]:
        """Those that are submitted now; --max-jobs leaves the others for later."""
        return self.runs[: self.plan.options.max_jobs]

    def affordable(self) -> list[tuple[Point, int]]:
        """Of `next_runs` what the study's budget holds; UsageError as `budget.affordable` has it."""
        return affordable(self.account, self.plan, self.next_runs)


def find_pending(study: Study, plan: SubmissionPlan, states: Sequence[RunState]) -> PendingRuns:
    """What of the plan is pending in a study whose runs are in these states."""
    return PendingRuns(
        study=study,
        plan=plan,
        states=states,
        account=account_if_limited(study, plan, states),
        runs=pending_runs(plan, states),
        missing=_missing_runs(plan, states) if plan.options.failed else [],
        unknown=unknown_runs(plan, states),
    )


def pending_runs(plan: SubmissionPlan, states: Sequence[RunState]) -> list[tuple[Point, int]]:
    """What is missing or failed, repetition by repetition, so that a queue that is cut short has every point once; what failed
    where the plan is for that only. A run whose submission was interrupted counts as missing: submit_runs looks it up before it
    asks again.
    """
    known = {state.key: state for state in states}
    points, repeats = [planned.point for planned in plan.points], plan.repeats
    is_pending = _has_failed if plan.options.failed else _is_pending
    most = max(repeats.values(), default=0)
    wanted = [(point, run) for run in range(1, most + 1) for point in points if run <= repeats[point.label]]
    return [(point, run) for point, run in wanted if is_pending(known.get(RunKey(point.label, run)))]


def _missing_runs(plan: SubmissionPlan, states: Sequence[RunState]) -> list[tuple[Point, int]]:
    failed = {state.key for state in states if state.phase == "failed"}
    every = pending_runs(replace(plan, options=replace(plan.options, failed=False)), states)
    return [(point, run) for point, run in every if RunKey(point.label, run) not in failed]


def _has_failed(state: RunState | None) -> bool:
    return state is not None and state.phase == "failed"


def _is_pending(state: RunState | None) -> bool:
    return state is None or state.phase in ("missing", "failed") or (state.phase == "unknown" and state.job is None)


def unknown_runs(plan: SubmissionPlan, states: Sequence[RunState]) -> list[RunState]:
    """Those runs of the plan that have a job of which nobody says what became of it."""
    repeats = plan.repeats
    unknown = (state for state in states if state.phase == "unknown" and state.job is not None)
    return [state for state in unknown if state.run <= repeats.get(state.label, 0)]


def with_failed_repeats(plan: SubmissionPlan, states: Sequence[RunState]) -> SubmissionPlan:
    """The plan with as many runs of each point as hold all that failed: --until-ci may have added some."""
    failed = [state for state in states if state.phase == "failed" and state.in_sweep]
    return replace(plan, more={state.label: state.run for state in sorted(failed, key=lambda state: state.run)})


def reasons_text(pending: PendingRuns) -> str:
    """Why the runs to be submitted failed, as `status` has it; empty where none did."""
    labels = {point.label for point, _ in pending.runs}
    failed = [state for state in pending.states if state.phase == "failed" and state.label in labels and state.in_sweep]
    return "\n".join(run_lines(failed))


def none_failed_words(pending: PendingRuns) -> str:
    """Where no run failed: that, and how what is missing or was rejected is measured."""
    parts = ["no run failed"]
    if pending.missing:
        number = len(pending.missing)
        what = f"{count(number, 'run')} {'is' if number == 1 else 'are'} missing"
        parts.append(f"{what}: submit without --failed for {_them(number)}")
    labels = {planned.point.label for planned in pending.plan.points}
    if rejected := [state for state in pending.states if state.phase == "done" and state.detail and state.label in labels]:
        runs = run_ranges(state.key for state in rejected)
        parts.append(f"rejected: {runs}; to measure {_them(len(rejected))} again, remove the run's folder, then submit")
    return "\n".join(parts)


def _them(number: int) -> str:
    return "it" if number == 1 else "them"
