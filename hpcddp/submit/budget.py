"""What a study has taken of its budget, and whether what is to be submitted still fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Budget, Hours
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.study.status import RunState
from hpcddp.study.used_hours import study_hours
from hpcddp.submit.one_allocation import allocation_request
from hpcddp.submit.submission_plan import SubmissionPlan

Run = tuple[Point, int]


@dataclass(frozen=True, kw_only=True)
class Account:
    """The budget of a study, and what is taken of it."""

    budget: Budget
    used: Hours
    """By the records of attempts that are over."""
    waiting: Hours
    """At most, by runs that wait or run."""

    def holds(self, more: Hours) -> bool:
        return self.budget.holds(self.used + self.waiting + more)

    def words(self, more: Hours) -> str:
        """A line that sets the budget against use and what would be added."""
        parts = [f"{self.used} used"]
        parts += [f"at most {self.waiting} by unfinished runs"] if self.waiting != Hours() else []
        parts += [f"at most {more} by runs to submit"] if more != Hours() else []
        return f"budget {self.budget}: {'; '.join(parts)}"


def run_hours(plan: SubmissionPlan, point: Point) -> Hours:
    """What one run may take at most: its time limit on all its nodes; nothing on this machine, as `status` has it."""
    if plan.profile.backend == "local":
        return Hours()
    request, node = plan.requests.get(point.label), point.layout.nodes * plan.source.sweep.slurm.walltime_min / 60
    gpus = (point.layout.gpus_per_node if point.device == "cuda" else 0) if request is None else request.gpus_counted
    return Hours(node=node, gpu=node * gpus)


def hours_of_runs(plan: SubmissionPlan, runs: Sequence[Run]) -> list[Hours]:
    """What each run may take at most; in one allocation each holds all nodes of the job."""
    if not plan.options.one_allocation or not runs:
        return [run_hours(plan, point) for point, _ in runs]
    request = allocation_request(plan, runs)
    node = request.nodes * plan.source.sweep.slurm.walltime_min / 60
    return [Hours(node=node, gpu=node * request.gpus_counted) for _ in runs]


def account(study: Study, plan: SubmissionPlan, states: Sequence[RunState]) -> Account:
    """Of all that was ever submitted of the study: hours as `status` has them; where a job's limit is not known, the plan's."""
    budget = plan.source.sweep.budget or plan.settings.budget
    if plan.profile.backend == "local":
        return Account(budget=budget, used=Hours(), waiting=Hours())
    hours = study_hours(study, states, limit_s=plan.source.sweep.slurm.walltime_min * 60)
    return Account(budget=budget, used=hours.used, waiting=hours.to_come or Hours())


def account_if_limited(study: Study, plan: SubmissionPlan, states: Sequence[RunState]) -> Account | None:
    """The study's account; None, and no records are read, where there is no budget."""
    return account(study, plan, states) if plan.source.sweep.budget or plan.settings.budget else None


def budget_words(taken: Account | None, plan: SubmissionPlan, runs: Sequence[Run]) -> str | None:
    """The budget, what is used of it and what these runs would take at most; None where there is none."""
    return None if taken is None else taken.words(sum(hours_of_runs(plan, runs), Hours()))


def affordable(taken: Account | None, plan: SubmissionPlan, runs: Sequence[Run]) -> list[Run]:
    """The runs, or as many of the first as the budget holds; UsageError where the plan may not be cut."""
    if taken is None:
        return list(runs)
    more = Hours()
    for number, hours in enumerate(hours_of_runs(plan, runs)):
        more += hours
        if plan.is_cut_at_budget and not taken.holds(more):
            return list(runs[:number])
    if runs and not taken.holds(more):
        raise UsageError(
            f"{taken.words(more)}. Raise budget.node_hours or budget.gpu_hours, reduce slurm.walltime_min or repeat, or submit "
            "fewer runs with --where or --max-jobs"
        )
    return list(runs)
