"""One short job on nodes of one type, which finds out what no Slurm knows of them."""

from __future__ import annotations

from dataclasses import replace

from hpcddp.backends.base import Backend
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.run_root import Study
from hpcddp.core.survey_record import SurveyRecord
from hpcddp.study.study_records import read_record
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.comm_benchmark import untrained_layout
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.submit.short_jobs import run_short_jobs
from hpcddp.submit.submission_plan import SubmissionPlan, make_submissions

ENTRY = "hpcddp.worker.survey.job:run"

WALLTIME_MIN = 10


def survey_points(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """The layout that is surveyed: by default two nodes, with a rank for each of their GPUs."""
    wanted = replace(layout, nodes=layout.nodes or 2)
    chosen = untrained_layout(wanted, options)
    if chosen.profile.backend != "slurm":
        raise UsageError(f"{chosen.profile.name} has no Slurm: a survey is a job on nodes that are not this machine")
    slurm = replace(chosen.source.sweep.slurm, walltime_min=min(WALLTIME_MIN, chosen.source.sweep.slurm.walltime_min))
    source = replace(chosen.source, sweep=replace(chosen.source.sweep, slurm=slurm))
    return replace(chosen, source=source)


def run_survey(study: Study, plan: SubmissionPlan, backend: Backend) -> SurveyRecord:
    """Submits the job, waits for it, and reads what it found; HpcddpError where it found nothing."""
    study = Study(study.folder.absolute())
    (submission,) = make_submissions(study, plan, backend.name, [(plan.points[0].point, 1)])
    ((job, state),) = run_short_jobs([replace(submission, entry=ENTRY, title="survey")], backend)
    found = read_record(SurveyRecord, study.survey_dir(job) / "survey.json")
    if found is None:
        why = state.detail or "it left no result"
        raise HpcddpError(f"survey: job {job} {state.phase}: {why}; see {study.job_dir(job)}")
    return found
