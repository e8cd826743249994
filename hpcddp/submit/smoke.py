"""One short job before the study: does the compute environment import, see the data on every node, and fit its GPUs?"""

from __future__ import annotations

import dataclasses
import time

from hpcddp.backends.base import Backend, JobState, Submission, pause_s
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.core.smoke_record import SmokeSummary
from hpcddp.study.study_records import read_record
from hpcddp.submit.submission_plan import SubmissionPlan, make_submissions

ENTRY = "hpcddp.worker.smoke:run"

WALLTIME_MIN = 10


def run_smoke(study: Study, plan: SubmissionPlan, backend: Backend) -> str:
    """Submits the smoke job, waits for it and says what it found; HpcddpError with every problem."""
    study = Study(study.folder.absolute())
    submission = smoke_submission(study, plan, backend)
    backend.check(submission)
    job = backend.submit(submission)
    try:
        state = _wait_for_end(job, submission.name, backend)
    except KeyboardInterrupt:
        backend.cancel({job: submission.name})  # nobody is left to hear what it finds
        raise
    found = read_record(SmokeSummary, study.smoke_dir(job) / "smoke.json")
    if found is None:
        raise HpcddpError(f"smoke test: job {job} {state.phase}: {state.detail or 'it left no result'}; see {study.job_dir(job)}")
    if not found.ok:
        problems = "".join(f"\n  {problem}" for problem in found.problems)
        raise HpcddpError(f"smoke test: job {job} found what would fail every run:{problems}")
    return f"smoke test   job {job}   {_summary(found)}"


def _wait_for_end(job: str, name: str, backend: Backend) -> JobState:
    """Waits until the job has ended, also while its cluster does not answer; its state then."""
    begun_s = time.monotonic()
    while (state := backend.poll({job: name})[job]).phase not in ("done", "failed"):
        time.sleep(pause_s(time.monotonic() - begun_s))
    return state


def smoke_submission(study: Study, plan: SubmissionPlan, backend: Backend) -> Submission:
    """The worker's smoke test on the smallest layout that the sweep has, on two nodes where it has such."""
    point = smoke_point([planned.point for planned in plan.points])
    shorter = {
        label: dataclasses.replace(request, walltime_min=min(WALLTIME_MIN, request.walltime_min))
        for label, request in plan.requests.items()
    }
    (submission,) = make_submissions(study, dataclasses.replace(plan, requests=shorter), backend.name, [(point, 1)])
    return dataclasses.replace(submission, entry=ENTRY, title="smoke", walltime_min=WALLTIME_MIN)


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
