"""Small jobs that a command waits for: a table of their kinds, how one is run, and what its record means before the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from hpcddp.backends.base import Backend, JobState, Submission, wait_for_ends
from hpcddp.backends.choose import make_backend
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.job_records import SmokeSummary, SurveyRecord
from hpcddp.core.point import Point
from hpcddp.core.preflight import PreflightRecord, preflight_words, slow_hosts
from hpcddp.core.run_root import Study
from hpcddp.core.text import count
from hpcddp.study.study_records import read_record
from hpcddp.submit.choose import ChosenPoints, shorter, untrained_layout
from hpcddp.submit.options import Console, LayoutOptions, PointOptions
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan, make_submissions, plan_submission

Record = TypeVar("Record")

WALLTIME_MIN = 10
"""Of each, at most: torch may take minutes to import; measuring takes seconds."""


@dataclass(frozen=True, kw_only=True)
class JobKind(Generic[Record]):
    """What a job does in place of a run, and what it leaves."""

    name: str
    """Of the job, or of its step in a job for runs."""
    words: str
    """What it is called in a sentence."""
    entry: str
    record: type[Record]
    file: Callable[[Study, str], Path]
    """Where the job of that id leaves its record."""
    is_direct: bool = False
    """Whether the backend itself starts each rank, whatever starts those of a run."""
    problems: Callable[[Record], Sequence[str]] = lambda record: ()
    """What of the record would fail every run."""

    def of(self, run: Submission, title: str | None = None) -> Submission:
        """The submission of a run as one of this kind."""
        layout = replace(run.spec.point.layout, launcher="direct") if self.is_direct else run.spec.point.layout
        spec = replace(run.spec, point=replace(run.spec.point, layout=layout))
        return replace(run, spec=spec, entry=self.entry, title=title or self.name)


SMOKE = JobKind(
    name="smoke",
    words="smoke test",
    entry="hpcddp.worker.smoke:smoke_rank",
    record=SmokeSummary,
    file=lambda study, job: study.smoke_dir(job) / "smoke.json",
    problems=lambda found: found.problems,
)
PREFLIGHT = JobKind(
    name="preflight",
    words="preflight",
    entry="hpcddp.worker.preflight:preflight_rank",
    record=PreflightRecord,
    file=lambda study, job: study.preflight_file(job, 0),
    is_direct=True,
)
SURVEY = JobKind(
    name="survey",
    words="survey",
    entry="hpcddp.worker.survey:survey_rank",
    record=SurveyRecord,
    file=lambda study, job: study.survey_dir(job) / "survey.json",
)


def run_kind(
    kind: JobKind[Record], study: Study, plan: SubmissionPlan, backend: Backend, points: Mapping[str, Point]
) -> dict[str, tuple[str, Record]]:
    """Submits a job for each point, by place (`v100`), and waits: name -> id and record. HpcddpError with every problem found."""
    study = Study(study.folder.absolute())
    jobs = _run_to_end(kind_submissions(kind, study, plan, backend.name, points), backend)
    found, wrong = dict[str, tuple[str, Record]](), list[str]()
    for place, (job, state) in zip(points, jobs, strict=True):
        on = f" on {place}" if len(points) > 1 else ""
        record = read_record(kind.record, kind.file(study, job))
        if record is None:
            why = state.detail or "it wrote no result"
            wrong.append(f"{kind.words}{on}: job {job} {state.phase}: {why}; see {study.job_dir(job)}")
        elif problems := kind.problems(record):
            head = f"{kind.words}{on}: job {job} found problems that would fail every run{' there' if on else ''}:"
            wrong.append("\n  ".join([head, *problems]))
        else:
            found[f"{kind.words}{on}"] = (job, record)
    if wrong:
        raise HpcddpError("\n".join(wrong))
    return found


def kind_submissions(
    kind: JobKind[Record], study: Study, plan: SubmissionPlan, backend: str, points: Mapping[str, Point]
) -> list[Submission]:
    """One for each point, no longer than WALLTIME_MIN."""
    short = {
        label: replace(
            request,
            walltime_min=min(WALLTIME_MIN, request.walltime_min),
            launcher="direct" if kind.is_direct else request.launcher,
        )
        for label, request in plan.requests.items()
    }
    runs = make_submissions(study, replace(plan, requests=short), backend, [(point, 1) for point in points.values()])
    titles = [f"{kind.name}-{place}" if len(points) > 1 else kind.name for place in points]
    return [replace(kind.of(run, title), walltime_min=WALLTIME_MIN) for run, title in zip(runs, titles, strict=True)]


def _run_to_end(submissions: Sequence[Submission], backend: Backend) -> list[tuple[str, JobState]]:
    """Checks and submits all, and waits; the id and the last state of each, in order."""
    for submission in submissions:
        backend.check(submission)
    jobs: dict[str, str] = {}
    try:
        for submission in submissions:
            jobs[backend.submit(submission)] = submission.name
        states = wait_for_ends(jobs, backend)
    except (KeyboardInterrupt, HpcddpError):
        if jobs:
            backend.cancel(jobs)  # nobody is left to hear what they find
        raise
    return [(job, states[job]) for job in jobs]


def run_smoke(study: Study, plan: SubmissionPlan, backend: Backend) -> str:
    """Does the compute environment of each type of node import, see the data and fit its GPUs? What was found, in words."""
    found = run_kind(SMOKE, study, plan, backend, smoke_points(plan))
    return "\n".join(f"{name}   job {job}   {_smoke_words(record)}" for name, (job, record) in found.items())


def smoke_points(plan: SubmissionPlan) -> dict[str, Point]:
    """By type of node the point with the fewest nodes and ranks, of those of several nodes where there are any."""
    by_type: dict[str, list[Point]] = {}
    for planned in plan.points:
        by_type.setdefault(str(planned.point.layout.node_type or plan.profile.default_node_type), []).append(planned.point)
    return {
        node_type: min(points, key=lambda point: (point.layout.nodes == 1, point.layout.nodes, point.ranks))
        for node_type, points in by_type.items()
    }


def _smoke_words(found: SmokeSummary) -> str:
    first, hosts = found.ranks[0], {rank.host for rank in found.ranks}
    versions = ", ".join(f"{name} {version}" for name, version in (first.versions or {}).items() if version)
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in (first.node.gpus if first.node else ()))) or "no GPU used"
    data = "" if found.data.root is None else f"; data visible on {len(found.data.seen_by)} of {len(hosts)} nodes"
    return f"ok ({versions}; {gpus}{data})"


def run_preflight(study: Study, plan: SubmissionPlan, backend: Backend) -> PreflightRecord:
    """Measures the nodes of the largest layout, and the spare ones."""
    largest = max((planned.point for planned in plan.points), key=lambda point: (point.layout.nodes, point.ranks))
    spare = plan.source.sweep.slurm.spare_nodes
    wide = {label: replace(request, nodes=request.nodes + spare) for label, request in plan.requests.items()}
    ((_, record),) = run_kind(PREFLIGHT, study, replace(plan, requests=wide), backend, {"": largest}).values()
    return record


def preflight_text(record: PreflightRecord, plan: SubmissionPlan) -> str:
    """What it found, and what to do about slow nodes where the user has not said that they may be left out."""
    line = f"preflight    job {record.job}   {preflight_words(record)}"
    hosts = ",".join(slow_hosts(record.slow))
    if not hosts:
        return line
    if plan.source.sweep.slurm.spare_nodes:
        return f"{line}\n             {hosts} excluded from all jobs: slurm.spare_nodes is {plan.source.sweep.slurm.spare_nodes}"
    return f"{line}\n             exclude them with --set slurm.exclude={hosts}, or always with --set slurm.spare_nodes=1"


def without_slow_nodes(plan: SubmissionPlan, record: PreflightRecord) -> SubmissionPlan:
    """The plan whose jobs are not given the slow nodes, where the sweep has spare ones; else as it is."""
    hosts = slow_hosts(record.slow)
    if not hosts or not plan.source.sweep.slurm.spare_nodes:
        return plan
    excluding = {
        label: replace(request, exclude=",".join(filter(None, [request.exclude, *hosts])))
        for label, request in plan.requests.items()
    }
    return replace(plan, requests=excluding)


def survey_points(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """The layout that is surveyed: by default two nodes, with a rank for each of their GPUs."""
    chosen = untrained_layout(replace(layout, nodes=layout.nodes or 2), options)
    if chosen.profile.backend != "slurm":
        raise UsageError(f"{chosen.profile.name} has no Slurm: a survey runs as a job on other nodes")
    return shorter(chosen, WALLTIME_MIN)


def run_survey(chosen: ChosenPoints, settings: Settings, folder: Path, console: Console, *, yes: bool) -> SurveyRecord:
    """Submits the job, unless the user says no, and waits for it; HpcddpError where it found nothing."""
    plan = plan_submission(chosen, settings)
    check_plan(plan)
    (request,) = plan.requests.values()
    if not yes:
        console.confirm(f"Submit one job, at most {request.walltime_min} min on {count(request.nodes, 'node')}?")
    study = Study(folder.absolute())
    backend = make_backend(chosen.profile.backend, study, rules=chosen.profile.slurm)
    ((_, record),) = run_kind(SURVEY, study, plan, backend, {"": plan.points[0].point}).values()
    return record
