"""One small job on nodes of one type, which finds out what no Slurm knows of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hpcddp.backends.choose import make_backend
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.run_root import Study
from hpcddp.core.survey_record import SurveyRecord
from hpcddp.core.text import count
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.comm_benchmark import shorter, untrained_layout
from hpcddp.submit.console import Console
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.submit.small_jobs import SURVEY, WALLTIME_MIN, run_kind
from hpcddp.submit.submission_plan import check_plan, plan_submission


def survey_points(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """The layout that is surveyed: by default two nodes, with a rank for each of their GPUs."""
    chosen = untrained_layout(replace(layout, nodes=layout.nodes or 2), options)
    if chosen.profile.backend != "slurm":
        raise UsageError(f"{chosen.profile.name} has no Slurm: a survey is a job on nodes that are not this machine")
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
