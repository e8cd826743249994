"""What is done to a data set as one job, with a sweep's script, account and refusals.

`hpcddp data ... --cluster`, and `hpcddp submit --prepare`: a job for each data set that is missing, which the runs wait for.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from hpcddp.backends.base import Backend, Batch, wait_for_ends
from hpcddp.backends.choose import make_backend
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings
from hpcddp.core.data_job import JOB_FILE, DataJob, DataTask
from hpcddp.core.errors import FAILED, HpcddpError
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.prepared import prepare_task, unprepared
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.study.data_jobs import DATA_FOLDER, DataJobState, data_job_lines, data_job_states
from hpcddp.study.study_folder import study_lock
from hpcddp.submit.choose import ChosenPoints, choose_layout
from hpcddp.submit.one_job import is_wanted, one_job_words, wait_for_job
from hpcddp.submit.options import Console, LayoutOptions, PointOptions, SubmitOptions
from hpcddp.submit.overview import submitted_words
from hpcddp.submit.remarks import root_here, with_data_on_disk
from hpcddp.submit.submission_plan import SubmissionPlan, anchored_path, check_plan, make_submissions, plan_submission
from hpcddp.sweep.expand import PlannedPoint, with_node_type

ENTRY = "hpcddp.worker.data_job:run_data_job"


@dataclass(frozen=True, kw_only=True)
class DataSubmission:
    """A task, the plan of its job, and the folder that has the job's records."""

    task: DataTask
    plan: SubmissionPlan
    study: Study
    backend: Backend


def data_layout(task: DataTask, node_type: str | None, options: PointOptions) -> ChosenPoints:
    """The point of a task's job where there is no sweep: one process on one node, with all its cores."""
    layout = LayoutOptions(nodes=1, gpus_per_node=1, node_type=node_type)
    chosen = choose_layout(layout, options, lambda profile: {"model": "none", "data": {"name": "none"}}, DATA_FOLDER)
    return data_points(task, chosen, chosen.source.sweep.layout)


def data_points(task: DataTask, chosen: ChosenPoints, layout: Layout) -> ChosenPoints:
    """The point of the task's job for that sweep: no GPU is used, and the header of its script says what is done."""
    workload = Workload(model=task.action, data=Data(name=task.data), loader_workers_per_rank=0)
    full = _with_all_cores(layout, chosen.profile)
    point = Point(cluster=chosen.profile.name, workload=workload, layout=full, device="cpu")
    return replace(chosen, points=[PlannedPoint(point, ())])


def _with_all_cores(layout: Layout, profile: ClusterProfile) -> Layout:
    """All cores of a node that is the job's own, unless the sweep says how many."""
    full = with_node_type(layout, profile)
    cores = profile.node_type(full.node_type).physical_cores
    if layout.physical_cores_per_rank is not None or not layout.exclusive or cores is None:
        return full
    return dataclasses.replace(full, physical_cores_per_rank=cores)


def plan_data_job(task: DataTask, points: ChosenPoints, settings: Settings, options: SubmitOptions) -> DataSubmission:
    """The job of a task that is of no study; UsageError for what the cluster would refuse."""
    root = options.runs or settings.run_root_here() or Path("jobs")
    study = Study((root / DATA_FOLDER).absolute())
    plan = plan_task(points, settings, options)
    backend = make_backend(plan.profile.backend, study, rules=plan.profile.slurm)
    return DataSubmission(task=anchored_task(task), plan=plan, study=study, backend=backend)


def plan_task(points: ChosenPoints, settings: Settings, options: SubmitOptions) -> SubmissionPlan:
    """The plan of a task's job, which needs no data to be there."""
    return replace(plan_submission(points, settings, options), reads_data=False)


def anchored_task(task: DataTask) -> DataTask:
    """With absolute folders: a relative one is meant from where the user stands, and the job stands elsewhere."""
    given = {name: str(task.options[name]) for name in task.folders if task.options.get(name) is not None}
    return task.with_folders({name: anchored_path(path) for name, path in given.items()})


def submit_data_job(job: DataSubmission, options: SubmitOptions, console: Console) -> int:
    """Shows the job, submits it unless one for the task waits or runs, and waits as far as the options say; the exit code."""
    if not is_wanted(job.plan, options, console):
        return 0
    record, is_new = ensure_data_job(job)
    if is_new:
        console.echo(submitted_words([record.job], job.plan.options))
    else:
        console.echo(f"Nothing was submitted: job {record.job} already does this.")
    status_command = f"hpcddp status {shlex.quote(str(job.study.folder))}"
    console.progress(status_command)
    if not options.wait:
        return 0
    wait_for_job(record.job, record.name, job.backend, console, status_command)
    (state,) = [state for state in data_job_states(job.study) if state.record.job == record.job]
    console.echo("\n".join(data_job_lines([state])))
    return 0 if state.phase == "done" else FAILED


def ensure_data_job(job: DataSubmission) -> tuple[DataJob, bool]:
    """The job for the task that waits or runs, or a new one; whether it is new."""
    with study_lock(job.study, denied="nothing can be written there ({}). Choose another folder with --runs"):
        live = [state.record for state in data_job_states(job.study) if state.is_live and state.record.task == job.task]
        return (live[-1], False) if live else (_send(job), True)


def _send(job: DataSubmission) -> DataJob:
    """Under the study's lock."""
    (planned,) = job.plan.points
    (run,) = make_submissions(job.study, job.plan, job.backend.name, [(planned.point, 1)])
    spec = replace(run.spec, data_task=encode(job.task))
    submission = replace(run, spec=spec, entry=ENTRY, title=job.task.title)
    job.backend.check(submission)
    (number,) = job.backend.submit_batch(Batch(submissions=(submission,), after_ok=job.plan.options.after))
    now = datetime.now(timezone.utc).isoformat()
    record = DataJob(task=job.task, job=number, name=submission.name, backend=spec.backend, submitted_at=now)
    write_json(job.study.data_dir(number) / JOB_FILE, encode(record))
    return record


def preparations(study: Study, plan: SubmissionPlan, backend: Backend) -> list[DataSubmission]:
    """The jobs that make missing data of the plan's points. Data out of sight are there if a job made them."""
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
    what = [f"{job.task.action} {job.task.data} in {job.task.options['root']}" for job in jobs]
    return [f"first, {words}:\n  {one_job_words(job.plan)}" for words, job in zip(what, jobs, strict=True)]


def prepare_first(study: Study, plan: SubmissionPlan, backend: Backend, console: Console) -> SubmissionPlan:
    """Submits jobs that are not live; the plan whose runs start after them. Without Slurm it waits; HpcddpError if they fail."""
    records = [_ensure(job, console) for job in preparations(study, plan, backend)]
    if backend.name == "slurm":
        return replace(plan, options=replace(plan.options, after=(*plan.options.after, *(record.job for record in records))))
    ends = wait_for_ends({record.job: record.name for record in records}, backend) if records else {}
    failed = [state for state in data_job_states(study) if state.record.job in ends and state.phase != "done"]
    if failed:
        raise HpcddpError(
            "\n".join(f"{state.record.task.title} failed: {state.detail}; no run was submitted" for state in failed)
        )
    return plan


def _ensure(job: DataSubmission, console: Console) -> DataJob:
    """The job that waits or runs for the task, here or beside the study, or a new one, which is said."""
    beside = [state.record for state in _states(job.study) if state.is_live and state.record.task == job.task]
    if beside:
        console.echo(f"preparation  job {beside[-1].job} already does this")
        return beside[-1]
    check_plan(job.plan)
    record, _ = ensure_data_job(job)
    console.echo(submitted_words([record.job], job.plan.options).replace("submitted   ", "preparation ", 1))
    return record
