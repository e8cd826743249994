"""`hpcddp bench data`: one job for each layout that loads a sweep's data, and what it found."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddp.backends.base import Backend, JobState, Submission
from hpcddp.backends.choose import make_backend
from hpcddp.cluster.settings import Settings
from hpcddp.core.catalog import check_workload
from hpcddp.core.data_bench_record import DataBenchRecord
from hpcddp.core.data_bench_request import DataBenchRequest
from hpcddp.core.data_bench_text import data_bench_text
from hpcddp.core.errors import FAILED, UsageError
from hpcddp.core.point import Data, Point
from hpcddp.core.run_root import Study
from hpcddp.core.text import count
from hpcddp.script.resources import hours_at_most
from hpcddp.study.study_folder import study_folder
from hpcddp.study.study_records import read_record
from hpcddp.submit.choose import ChosenPoints, choose_layout
from hpcddp.submit.console import Console
from hpcddp.submit.options import DataBenchOptions, LayoutOptions, PointOptions, SubmitOptions
from hpcddp.submit.overview import small_words, submitted_words
from hpcddp.submit.remarks import remarks
from hpcddp.submit.request_check import check_requests
from hpcddp.submit.short_jobs import wait_for_ends
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan, lacks_account, make_submissions, obstacles, plan_submission
from hpcddp.sweep.expand import PlannedPoint, with_node_type

ENTRY = "hpcddp.worker.data_bench.job:run"

MODELS = {"imagenet": "resnet50", "cifar10": "resnet18", "digits": "resnet18"}
"""What trains a data set where only that is named; else the MNIST CNN."""

START_MIN, PASSES, USUAL_WORKERS = 5, 10, 8
"""Of a job's time: until it loads, measurements of a setting, and settings where the job finds out how many cores it has."""


@dataclass(frozen=True, kw_only=True)
class DataBenches:
    """What is to be submitted."""

    points: ChosenPoints
    """One for each layout and data set."""
    requests: Mapping[str, DataBenchRequest]
    """By label."""


def data_layout(layout: LayoutOptions, options: PointOptions, name: str, root: str | None) -> ChosenPoints:
    """A point of that layout with that data set, where no sweep file is given; UsageError for one that is unknown."""
    model = MODELS.get(name.removeprefix("synthetic-"), "mnist-cnn")
    data = {"name": name, **({"root": root} if root else {})}
    chosen = choose_layout(layout, options, lambda profile: {"model": model, "data": data}, "bench-data")
    wanted = chosen.source.sweep
    full = with_node_type(wanted.layout, chosen.profile)
    check_workload(wanted.workload)
    point = Point(cluster=chosen.profile.name, workload=wanted.workload, layout=full, device=wanted.device)
    return replace(chosen, points=[PlannedPoint(point, ())])


def data_benches(chosen: ChosenPoints, options: DataBenchOptions) -> DataBenches:
    """One job for each layout and data set of the points, with all their batches; UsageError for points without loaders."""
    by_layout: dict[object, list[Point]] = {}
    for point in (planned.point for planned in chosen.points):
        if point.own_loop or point.work == "comm":
            raise UsageError(f"{point.label} has no loader of hpcddp's: a script reads its data by itself")
        by_layout.setdefault((point.layout, replace(point.workload.data, decoder="auto", form="shards")), []).append(point)
    requests = {alike[0].label: _request(alike, options) for alike in by_layout.values()}
    minutes = max(map(_minutes, requests.values()))
    source = chosen.source
    slurm = replace(source.sweep.slurm, walltime_min=minutes)
    source = replace(source, sweep=replace(source.sweep, repeat=1, slurm=slurm))
    points = [PlannedPoint(alike[0], ()) for alike in by_layout.values()]
    return DataBenches(points=replace(chosen, source=source, points=points), requests=requests)


def _request(points: Sequence[Point], options: DataBenchOptions) -> DataBenchRequest:
    known = [point.workload.data for point in points]
    name = known[0].name
    if options.decoders and name != "imagenet":
        raise UsageError(f"--decoder is for pictures that are decoded, and {name} has none: leave it out")
    if options.forms and name != "bigmnist":
        raise UsageError(f"--form is of bigmnist, and this is {name}: leave it out")
    if options.workers and known[0].resident:
        raise UsageError(f"--workers is for loader processes, and {name} that is resident has none: leave it out")
    chosen = [
        replace(data, decoder=decoder, form=form)  # type: ignore[arg-type]  # the command line takes no others
        for data in known
        for decoder in options.decoders or (data.decoder,)
        for form in options.forms or (data.form,)
    ]
    return DataBenchRequest(
        loader_workers_per_rank=(0,) if known[0].resident else options.workers,
        batch_per_gpu=options.batches or tuple(dict.fromkeys(point.workload.batch_per_gpu for point in points)),
        data=tuple(dict.fromkeys(chosen)),
        seconds=options.seconds,
    )


def _minutes(request: DataBenchRequest) -> int:
    """What a job asks for."""
    settings = len(request.data) * len(request.batch_per_gpu) * (len(request.loader_workers_per_rank) or USUAL_WORKERS)
    return START_MIN + math.ceil(settings * PASSES * (request.seconds + 1) / 60)


def submit_data_benches(benches: DataBenches, settings: Settings, options: SubmitOptions, console: Console) -> int:
    """Shows the jobs, submits them, says where their results will be, and waits as far as the options say; the exit code."""
    plan = plan_submission(benches.points, settings, options)
    study = Study(study_folder(plan.source.file, options.runs, settings).absolute())
    backend = make_backend(plan.profile.backend, study, rules=plan.profile.slurm)
    _show(plan, console)
    if options.dry_run:
        _end_dry_run(plan, console)
        return 0
    check_plan(plan)
    _confirm(plan, options, console)
    submissions = _submissions(study, plan, backend, benches.requests)
    for submission in submissions:
        backend.check(submission)
    jobs = {backend.submit(submission): submission.name for submission in submissions}
    console.echo(submitted_words(list(jobs), None, ()))
    for job in jobs:
        console.echo(f"result       {study.data_bench_file(job)}")
    console.progress(
        f"the jobs' output, below {shlex.quote(str(study.jobs))}, will show it, and so will hpcddp analyze beside runs"
    )
    return _wait(jobs, study, backend, console) if options.wait else 0


def _submissions(
    study: Study, plan: SubmissionPlan, backend: Backend, requests: Mapping[str, DataBenchRequest]
) -> list[Submission]:
    runs = [(planned.point, 1) for planned in plan.points]
    return [
        replace(
            submission,
            entry=ENTRY,
            title=f"bench-data-n{submission.spec.point.layout.nodes:02d}-g{submission.spec.point.layout.gpus_per_node}",
            spec=replace(
                submission.spec, data_bench=_anchored(requests[submission.spec.label], submission.spec.point.workload.data)
            ),
        )
        for submission in make_submissions(study, plan, backend.name, runs)
    ]


def _anchored(request: DataBenchRequest, data: Data) -> DataBenchRequest:
    """With the root as the job's point has it: where the job stands it is the same folder."""
    return replace(request, data=tuple(replace(each, root=data.root) for each in request.data))


def _show(plan: SubmissionPlan, console: Console) -> None:
    for text in remarks(plan.profile, plan.points):
        console.remark(text)
    for planned in plan.points:
        layout, data = planned.point.layout, planned.point.workload.data
        request = plan.requests.get(planned.point.label)
        cost = f", at most {hours_at_most(request)}" if request else ""
        size = f"{count(layout.nodes, 'node')} x {count(planned.point.ranks_per_node, 'rank')}"
        console.echo(f"1 job on {plan.profile.name}: {size} load {data.name}{cost}")


def _end_dry_run(plan: SubmissionPlan, console: Console) -> None:
    """Says what would be refused, and that nothing was submitted."""
    for text in obstacles(plan):
        console.remark(text)
    if plan.profile.backend == "slurm" and not lacks_account(plan):
        found = check_requests(plan, [(planned.point, 1) for planned in plan.points])
        for text in (*([found.remark] if found.remark else []), *found.certain, *found.uncertain):
            console.remark(text)
    console.echo("nothing submitted: this was a dry run")


def _confirm(plan: SubmissionPlan, options: SubmitOptions, console: Console) -> None:
    """Nothing is asked about what runs here."""
    hours = [hours_at_most(request) for request in plan.requests.values()]
    if options.yes or not hours:
        return
    total = hours[0]
    for each in hours[1:]:
        total += each
    words = small_words(plan.settings.ask_above, total)
    if words is not None:
        console.remark(words)
    else:
        console.confirm("Submit?")


def _wait(jobs: Mapping[str, str], study: Study, backend: Backend, console: Console) -> int:
    """Until all are over; what each found. Ctrl-C ends only the waiting."""
    try:
        states = wait_for_ends(jobs, backend)
    except KeyboardInterrupt:
        console.remark(f"the jobs go on; what they find will be in {shlex.quote(str(study.data_benches))}")
        raise
    texts = [_found(job, states[job], study) for job in jobs]
    for text, is_result in texts:
        (console.echo if is_result else console.remark)(text)
    return 0 if all(is_result for _, is_result in texts) else FAILED


def _found(job: str, state: JobState, study: Study) -> tuple[str, bool]:
    """What it found, or why it found nothing."""
    record = read_record(DataBenchRecord, study.data_bench_file(job))
    if record is None:
        return f"job {job} {state.phase}: {state.detail or 'it left no result'}; see {study.job_dir(job)}", False
    return data_bench_text(record), True
