"""`hpcddp submit --prepare`: a job for each data set that is missing, which the runs wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcddp.backends.base import Backend
from hpcddp.core.data_job_record import DataJob
from hpcddp.core.data_task import DataTask
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Layout, Point
from hpcddp.core.prepared import prepare_task, unprepared
from hpcddp.core.run_root import Study
from hpcddp.study.data_jobs import DATA_FOLDER, DataJobState, data_job_states
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.console import Console
from hpcddp.submit.data_job import DataSubmission, anchored_task, data_points, ensure_data_job, plan_task
from hpcddp.submit.missing_data import root_here, with_data_on_disk
from hpcddp.submit.one_job import one_job_words
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.overview import submitted_words
from hpcddp.submit.small_jobs import wait_for_ends
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan


def preparations(study: Study, plan: SubmissionPlan, backend: Backend) -> list[DataSubmission]:
    """The jobs that make what the plan's points read and what is not there yet: what cannot be seen from here is there where a
    job of the study, or of `hpcddp data` beside it, made it.
    """
    made = [state.record.task for state in _states(study) if state.phase == "done"]
    found: dict[tuple[str, str], DataSubmission] = {}
    for point, root in with_data_on_disk(plan.points, plan.settings.data_roots):
        task, folder = prepare_task(point.workload.data, root), root_here(root, runs_here=plan.profile.backend == "local")
        lacks = None if folder is None else unprepared(point.workload.data, folder)
        if task is None or (folder is not None and (lacks is None or not lacks.is_missing)):
            continue
        task = anchored_task(task)
        if folder is not None or task not in made:
            found.setdefault((task.data, root), _submission(study, plan, backend, task, point))
    return list(found.values())


def _states(study: Study) -> list[DataJobState]:
    """Of the study's jobs that prepare data, and of those that are of no study and lie beside it."""
    return [state for place in (study, Study(study.folder.parent / DATA_FOLDER)) for state in data_job_states(place)]


def _submission(study: Study, plan: SubmissionPlan, backend: Backend, task: DataTask, point: Point) -> DataSubmission:
    """On one node of the point's type."""
    layout = Layout(node_type=point.layout.node_type, exclusive=point.layout.exclusive)
    chosen = data_points(task, ChosenPoints(source=plan.source, profile=plan.profile, points=()), layout)
    own = plan_task(chosen, plan.settings, SubmitOptions(after=plan.options.after))
    return DataSubmission(task=task, plan=own, study=study, backend=backend)


def preparation_words(jobs: Sequence[DataSubmission]) -> list[str]:
    """What comes before the runs, two lines for each job."""
    return [
        f"first, {job.task.action} {job.task.data} in {job.task.options['root']}:\n  {one_job_words(job.plan)}" for job in jobs
    ]


def prepare_first(study: Study, plan: SubmissionPlan, backend: Backend, console: Console) -> SubmissionPlan:
    """Submits the jobs, unless they wait or run already; the plan whose runs start when these have ended well. Without Slurm,
    which would see to that, they are waited for; HpcddpError where one fails.
    """
    records = [_ensure(job, console) for job in preparations(study, plan, backend)]
    if backend.name == "slurm":
        return replace(plan, options=replace(plan.options, after=(*plan.options.after, *(record.job for record in records))))
    ends = wait_for_ends({record.job: record.name for record in records}, backend) if records else {}
    failed = [state for state in data_job_states(study) if state.record.job in ends and state.phase != "done"]
    if failed:
        raise HpcddpError("\n".join(f"{state.record.task.title} failed: {state.detail}; no run is submitted" for state in failed))
    return plan


def _ensure(job: DataSubmission, console: Console) -> DataJob:
    """The job that waits or runs for the task, here or beside the study, or a new one, which is said."""
    beside = [state.record for state in _states(job.study) if state.is_live and state.record.task == job.task]
    if beside:
        console.echo(f"preparation  job {beside[-1].job} does that already")
        return beside[-1]
    check_plan(job.plan)
    record, _ = ensure_data_job(job)
    console.echo(submitted_words([record.job], job.plan.options).replace("submitted   ", "preparation ", 1))
    return record
