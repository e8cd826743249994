"""A short job on each type of node before the study: does the compute environment import, see the data on every node, and fit its
GPUs?
"""

from __future__ import annotations

import dataclasses

from hpcddp.backends.base import Backend, JobState, Submission
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.core.smoke_record import SmokeSummary
from hpcddp.study.study_records import read_record
from hpcddp.submit.short_jobs import run_short_jobs
from hpcddp.submit.submission_plan import SubmissionPlan, make_submissions

ENTRY = "hpcddp.worker.smoke:run"

WALLTIME_MIN = 10


def run_smoke(study: Study, plan: SubmissionPlan, backend: Backend) -> str:
    """Submits a smoke job for each type of node, waits for all and says what they found; HpcddpError with every problem."""
    study = Study(study.folder.absolute())
    submissions = smoke_submissions(study, plan, backend)
    jobs = run_short_jobs(list(submissions.values()), backend)
    places = [f" on {node_type}" if len(submissions) > 1 else "" for node_type in submissions]
    found = [_found(study, job, state, on) for (job, state), on in zip(jobs, places, strict=True)]
    if problems := [problem for problem, _ in found if problem]:
        raise HpcddpError("\n".join(problems))
    return "\n".join(summary for _, summary in found)


def _found(study: Study, job: str, state: JobState, on: str) -> tuple[str, str]:
    """What a job found that would fail runs, and what it found; one of them is empty.

    `on` is ` on v100`; empty where all points are on nodes of one type.
    """
    summary = read_record(SmokeSummary, study.smoke_dir(job) / "smoke.json")
    if summary is None:
        why = state.detail or "it left no result"
        return f"smoke test{on}: job {job} {state.phase}: {why}; see {study.job_dir(job)}", ""
    if not summary.ok:
        problems = "".join(f"\n  {problem}" for problem in summary.problems)
        return f"smoke test{on}: job {job} found what would fail every run{' there' if on else ''}:{problems}", ""
    return "", f"smoke test{on}   job {job}   {_summary(summary)}"


def smoke_submissions(study: Study, plan: SubmissionPlan, backend: Backend) -> dict[str, Submission]:
    """By type of node, the worker's smoke test on the smallest layout that the sweep has there, of two nodes if there is."""
    by_type: dict[str, list[Point]] = {}
    for planned in plan.points:
        node_type = planned.point.layout.node_type or plan.profile.default_node_type
        by_type.setdefault(str(node_type), []).append(planned.point)
    shorter = {
        label: dataclasses.replace(request, walltime_min=min(WALLTIME_MIN, request.walltime_min))
        for label, request in plan.requests.items()
    }
    runs = [(smoke_point(points), 1) for points in by_type.values()]
    submissions = make_submissions(study, dataclasses.replace(plan, requests=shorter), backend.name, runs)
    return {
        node_type: dataclasses.replace(
            submission, entry=ENTRY, title=f"smoke-{node_type}" if len(runs) > 1 else "smoke", walltime_min=WALLTIME_MIN
        )
        for node_type, submission in zip(by_type, submissions, strict=True)
    }


def smoke_point(points: list[Point]) -> Point:
    """The point with the fewest nodes and ranks among those of several nodes, or of all where none has several."""
    several = [point for point in points if point.layout.nodes > 1]
    return min(several or points, key=lambda point: (point.layout.nodes, point.ranks))


def _summary(found: SmokeSummary) -> str:
    first, hosts = found.ranks[0], {rank.host for rank in found.ranks}
    versions = ", ".join(f"{name} {version}" for name, version in (first.versions or {}).items() if version)
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in (first.node.gpus if first.node else ()))) or "no GPU used"
    data = "" if found.data.root is None else f"; data visible on {len(found.data.seen_by)} of {len(hosts)} nodes"
    return f"ok ({versions}; {gpus}{data})"
