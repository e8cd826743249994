"""Many runs in one job, as steps on the first of its nodes: what the job requests, and in which order the runs go.

So runs of all sizes are measured on the same nodes after one wait in the queue. Each run gets what a job of its own would give
it; the job requests the most that any of them needs, for the sum of their times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from hpcddp.backends.base import Batch, OneAllocation, Submission, job_name
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.core.text import count, thousands
from hpcddp.script.job_request import JobRequest
from hpcddp.script.queues import walltime_limit_min
from hpcddp.script.render import JobStep, ScriptLaunch, render
from hpcddp.script.resources import broken_limits, usual_warning_s
from hpcddp.submit.small_jobs import PREFLIGHT
from hpcddp.submit.submission_plan import SubmissionPlan

Run = tuple[Point, int]

FLAG = "--one-allocation"


def allocation_request(plan: SubmissionPlan, runs: Sequence[Run]) -> JobRequest:
    """The request for all these runs; UsageError says what no single job gives."""
    if plan.profile.backend != "slurm":
        raise UsageError(f"{FLAG} needs Slurm, and {plan.profile.name} has none. Omit {FLAG}.")
    points = list({point.label: point for point, _ in runs}.values())
    if found := [*_mixed_layouts(points), *_unsuitable_options(plan)]:
        raise UsageError("\n".join(found))
    spare = plan.source.sweep.slurm.spare_nodes
    requests = [plan.requests[point.label] for point in points]
    largest = max(requests, key=lambda one: one.nodes)
    widest = max(requests, key=lambda one: (one.tasks_per_node * (one.cpus_per_task or 1), one.tasks_per_node))
    cores = widest.physical_cores_per_rank
    big = next(point for point in points if point.layout.nodes == largest.nodes)
    largest = dataclasses.replace(largest, nodes=largest.nodes + spare)
    limits_min = (walltime_limit_min(plan.profile, big, largest), plan.longest_min)
    time_min = min([len(runs) * largest.walltime_min, *(limit for limit in limits_min if limit is not None)])
    allocation = dataclasses.replace(
        largest,
        launcher="direct",
        ranks_per_node=widest.tasks_per_node,
        cpus_per_rank=widest.cpus_per_task,
        physical_cores_per_rank=None if cores is None else cores * widest.ranks_per_node // widest.tasks_per_node,
        gpus_per_node=max(one.gpus_per_node for one in requests),
        mem_mb=max((one.mem_mb for one in requests if one.mem_mb is not None), default=None),
        walltime_min=time_min,
        warning_s=usual_warning_s(time_min),
    )
    if refused := list(broken_limits(plan.profile, big, allocation)):
        again = f"{FLAG}: one job requests the most that any of its points needs. Omit {FLAG}, or choose points with --where."
        raise UsageError("\n".join([*refused, again]))
    return allocation


def allocation_batch(plan: SubmissionPlan, submissions: Sequence[Submission]) -> Batch:
    """The batch of these runs, repetition by repetition, so that drift slows all points alike; each begins with the largest."""
    in_sequence = sorted(submissions, key=lambda one: (one.spec.run, -one.spec.point.layout.nodes, -one.spec.point.ranks))
    runs = [(one.spec.point, one.spec.run) for one in in_sequence]
    request = dataclasses.replace(allocation_request(plan, runs), physical_cores_per_rank=None)

    def text(name: str, folder: str, launches: Sequence[ScriptLaunch], preflight: ScriptLaunch) -> str:
        steps = tuple(
            _step(job_name(point.label, run), plan.requests[point.label], launch, resumes=point.measure.resume)
            for (point, run), launch in zip(runs, launches, strict=True)
        )
        on_all = dataclasses.replace(plan.requests[runs[0][0].label], nodes=request.nodes, launcher="direct")
        folders = tuple(dict.fromkeys(path for launch in launches for path in launch.folders))
        launch = ScriptLaunch(
            command="",
            array=name,
            steps=steps,
            preflight=_step(PREFLIGHT.name, on_all, preflight, resumes=False),
            spare_nodes=plan.source.sweep.slurm.spare_nodes,
            folder=folder,
            folders=folders,
        )
        script = render(plan.profile, runs[0][0], request, launch)
        if script.count("\nrun_step ") != len(steps):
            words = f"template {plan.profile.template} launches one run per job. Omit {FLAG}."
            raise UsageError(f"{FLAG}: {words}")
        return script

    return Batch(
        submissions=tuple(in_sequence),
        one_allocation=OneAllocation(
            nodes=request.nodes, gpus_per_node=request.gpus_counted, preflight=PREFLIGHT.of(in_sequence[0]), render_text=text
        ),
    )


def _step(name: str, request: JobRequest, launch: ScriptLaunch, *, resumes: bool) -> JobStep:
    return JobStep(name=name, request=request, resumes=resumes, command=launch.command, output=launch.output, error=launch.error)


def allocation_words(plan: SubmissionPlan, runs: Sequence[Run]) -> str:
    """What the job requests: its nodes, its time, and why not more."""
    request = allocation_request(plan, runs)
    all_min = len(runs) * plan.requests[runs[0][0].label].walltime_min
    why = f"the time of its {count(len(runs), 'run')}"
    if request.walltime_min < all_min:
        why = f"the limit of one job; {why} is {thousands(all_min)} min, and the rest is requeued"
    spare = plan.source.sweep.slurm.spare_nodes
    nodes = f"{count(request.nodes, 'node')}{f', {spare} of them spare,' if spare else ''}"
    return f"one job of {nodes} for {thousands(request.walltime_min)} min: {why}"


def _mixed_layouts(points: Sequence[Point]) -> Iterator[str]:
    """A sentence for each layout key in which the points differ and the nodes of one job cannot."""
    for key in ("node_type", "exclusive"):
        values = dict.fromkeys(getattr(point.layout, key) for point in points)
        if len(values) > 1:
            one, other = list(values)[:2]
            yield (
                f"{FLAG}: layout.{key} is {one} in some points and {other} in others, but a job has nodes of one kind. Submit "
                f"each kind by itself, with --where or --group."
            )


def _unsuitable_options(plan: SubmissionPlan) -> Iterator[str]:
    for option in plan.source.sweep.slurm.options:
        name, _, value = option.partition("=")
        if name == "--signal" and not value.startswith("B:"):
            yield f"{FLAG}: the signal must reach the job's script. Write `-J --signal=B:{value.removeprefix('R:')}`."
