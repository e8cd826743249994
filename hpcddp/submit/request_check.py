"""Before the first job: whether Slurm would take each request of a study, and what the profile lacks where it would not."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcddp.backends.slurm_commands import UnansweredError
from hpcddp.backends.slurm_test_only import test_only
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.core.text import count
from hpcddp.script.job_request import JobRequest
from hpcddp.script.render import launch_by_hand, render
from hpcddp.submit.one_allocation import allocation_request
from hpcddp.submit.refused_requests import Refusal, explain
from hpcddp.submit.submission_plan import SubmissionPlan

NAMED = 2
"""Points by name in a sentence; others are counted."""

PATIENCE_S = 30.0
"""For all requests together: a user waits for the answer."""


@dataclass(frozen=True, kw_only=True)
class RequestCheck:
    """What Slurm said of the requests of a study."""

    refused: Mapping[Refusal, Sequence[Point]] = field(default_factory=dict)
    """Why -> the points that it holds for."""
    remark: str | None = None
    """Why it has not judged all of them."""

    @property
    def certain(self) -> list[str]:
        """A sentence for each reason that sbatch would have, too."""
        return [_sentence(refusal, points) for refusal, points in self.refused.items() if refusal.is_certain]

    @property
    def uncertain(self) -> list[str]:
        """A sentence for each reason that may leave a job waiting in the queue."""
        return [_sentence(refusal, points) for refusal, points in self.refused.items() if not refusal.is_certain]


def _sentence(refusal: Refusal, points: Sequence[Point]) -> str:
    named = ", ".join(point.label for point in points[:NAMED])
    more = f" and {count(len(points) - NAMED, 'more point')}" if len(points) > NAMED else ""
    return f"{named}{more}: {refusal.text}"


@dataclass(frozen=True, kw_only=True)
class _Distinct:
    """A request with the points that make it."""

    request: JobRequest
    points: Sequence[Point]


def check_requests(plan: SubmissionPlan, runs: Sequence[tuple[Point, int]]) -> RequestCheck:
    """Has sbatch judge each distinct request of these runs, no faster than the profile allows; ends after PATIENCE_S at most."""
    deadline, refused = time.monotonic() + PATIENCE_S, dict[Refusal, list[Point]]()
    distinct = list(_distinct_requests(plan, runs))
    for done, each in enumerate(distinct):
        if done and not _pause(plan, deadline):
            return RequestCheck(refused=refused, remark=_remark(done, distinct, f"that took {PATIENCE_S:g} s"))
        try:
            words = test_only(_script(plan, each), deadline - time.monotonic())
        except UnansweredError as error:
            return RequestCheck(refused=refused, remark=_remark(done, distinct, str(error)))
        except HpcddpError as error:
            return RequestCheck(remark=_remark(done, distinct, str(error)))
        if words is not None:
            refused.setdefault(explain(plan.profile, each.points[0], each.request, words), []).extend(each.points)
    return RequestCheck(refused=refused)


def _distinct_requests(plan: SubmissionPlan, runs: Sequence[tuple[Point, int]]) -> Iterator[_Distinct]:
    """In the order of their first points; one for all where they are steps of one job."""
    points = list({point.label: point for point, _ in runs}.values())
    if plan.options.one_allocation and runs:
        yield _Distinct(request=allocation_request(plan, runs), points=points)
        return
    groups: dict[JobRequest, list[Point]] = {}
    for point in points:
        groups.setdefault(dataclasses.replace(plan.requests[point.label], name="", env=()), []).append(point)
    for of_group in groups.values():
        yield _Distinct(request=plan.requests[of_group[0].label], points=of_group)


def _script(plan: SubmissionPlan, each: _Distinct) -> str:
    """As `hpcddp render` prints it: what Slurm judges is its header."""
    point = each.points[0]
    launch = launch_by_hand(plan.profile, JobSpec(point=point, study="$HPCDDP_RUNS/adhoc"), None)
    return render(plan.profile, point, each.request, launch)


def _pause(plan: SubmissionPlan, deadline: float) -> bool:
    """Waits as long as the profile wants between two calls of sbatch; False where no second would be left for an answer."""
    rate = plan.profile.slurm.submissions_per_s
    pause_s = 1 / rate if rate else 0.0
    if time.monotonic() + pause_s + 1 > deadline:
        return False
    time.sleep(pause_s)
    return True


def _remark(done: int, distinct: Sequence[_Distinct], why: str) -> str:
    if not done:
        return f"not checked with Slurm: {why}"
    return f"{count(len(distinct) - done, 'request')} of {len(distinct)} not checked with Slurm: {why}"
