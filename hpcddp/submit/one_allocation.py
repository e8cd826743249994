"""Many runs in one job, as steps on the first of its nodes: what is asked for all of them, and in which order they run.

So runs of all sizes are measured on the same nodes after one wait in the queue. What each run gets is what a job of its own would
get; the job asks for the most that any of them needs, for the time of all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from hpcddp.backends.base import Batch, OneAllocation, Submission, job_name
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.core.text import count
from hpcddp.script.job_request import JobRequest
from hpcddp.script.limits import refusals
from hpcddp.script.render import JobStep, Launch, render
from hpcddp.script.resources import WARNING_S
from hpcddp.submit.submission_plan import SubmissionPlan

Run = tuple[Point, int]

FLAG = "--one-allocation"


def for_one_job(order: SubmissionPlan) -> SubmissionPlan:
    """The order with all its runs in one job, which takes no longer than Slurm lets it."""
    from hpcddp.backends.slurm_commands import longest_min

    partition = order.source.sweep.slurm.partition or order.profile.slurm.partition
    known = longest_min(partition) if order.profile.backend == "slurm" else None
    return dataclasses.replace(order, one_allocation=True, longest_min=known)


def one_job(order: SubmissionPlan, runs: Sequence[Run]) -> JobRequest:
    """The request for all these runs; UsageError says what no single job gives."""
    if order.profile.backend != "slurm":
        raise UsageError(f"{FLAG}: {order.profile.name} has no jobs of Slurm; leave it out")
    points = list({point.label: point for point, _ in runs}.values())
    if found := [*_odd(points), *_odd_options(order)]:
        raise UsageError("\n".join(found))
    asked = [order.requests[point.label] for point in points]
    largest, widest = max(asked, key=lambda one: one.nodes), max(asked, key=_cpus_of_node)
    time_min = min([len(runs) * largest.walltime_min, *_limits_min(order, largest)])
    whole = dataclasses.replace(
        largest,
        launcher="direct",
        ranks_per_node=widest.tasks_per_node,
        cpus_per_rank=widest.cpus_per_task,
        physical_cores_per_rank=widest.physical_cores_per_rank,
        gpus_per_node=max(one.gpus_per_node for one in asked),
        mem_mb=max((one.mem_mb for one in asked if one.mem_mb is not None), default=None),
        walltime_min=time_min,
        warning_s=min(WARNING_S, time_min * 15),
    )
    big = next(point for point in points if point.layout.nodes == largest.nodes)
    if refused := list(refusals(order.profile, big, whole)):
        again = f"{FLAG}: one job asks for the most that any of its points needs; leave it out, or choose points with --where"
        raise UsageError("\n".join([*refused, again]))
    return whole


def in_one_job(order: SubmissionPlan, requests: Sequence[Submission]) -> Batch:
    """The batch; a run on its own is a job like any other. Repetition by repetition, so that a cluster that slows down slows all
    points alike, in each the largest points first.
    """
    if len(requests) == 1:
        return Batch(requests=tuple(requests))
    turns = sorted(requests, key=lambda one: (one.spec.run, -one.spec.point.layout.nodes, -one.spec.point.ranks))
    runs = [(one.spec.point, one.spec.run) for one in turns]
    whole = dataclasses.replace(one_job(order, runs), physical_cores_per_rank=None)

    def text(name: str, folder: str, launches: Sequence[Launch]) -> str:
        steps = tuple(
            JobStep(
                name=job_name(point.label, run),
                request=order.requests[point.label],
                resumes=point.measure.resume,
                command=launch.command,
                output=launch.output,
                error=launch.error,
            )
            for (point, run), launch in zip(runs, launches, strict=True)
        )
        script = render(order.profile, runs[0][0], whole, Launch(command="", array=name, steps=steps, folder=folder))
        if script.count("\nrun_step ") != len(steps):
            raise UsageError(
                f"{FLAG}: template {order.profile.template} launches in a way of its own, one run a job; leave {FLAG} out"
            )
        return script

    return Batch(
        requests=tuple(turns), together=OneAllocation(nodes=whole.nodes, gpus_per_node=whole.gpus_per_node, render_text=text)
    )


def one_job_words(order: SubmissionPlan, runs: Sequence[Run]) -> str:
    """What is asked for: its nodes, its time, and why not more."""
    whole = one_job(order, runs)
    all_min = len(runs) * order.requests[runs[0][0].label].walltime_min
    why = f"the time of its {count(len(runs), 'run')}"
    if whole.walltime_min < all_min:
        why = f"as long as one may take; {why} is {all_min:,} min, and what is left is requeued"
    return f"one job of {count(whole.nodes, 'node')} for {whole.walltime_min:,} min: {why}"


def _odd(points: Sequence[Point]) -> Iterator[str]:
    """In what points differ that all nodes of a job have in common."""
    for key in ("node_type", "exclusive"):
        values = dict.fromkeys(getattr(point.layout, key) for point in points)
        if len(values) > 1:
            one, other = list(values)[:2]
            yield (
                f"{FLAG}: layout.{key} is {one} in some points and {other} in others, and a job has nodes of one kind; choose "
                f"points with --where or --group, and submit once for each"
            )


def _odd_options(order: SubmissionPlan) -> Iterator[str]:
    for option in order.source.sweep.slurm.options:
        name, _, value = option.partition("=")
        if name == "--signal" and not value.startswith("B:"):
            yield f"{FLAG}: the job's script is to be told first: write -J --signal=B:{value.removeprefix('R:')}"


def _cpus_of_node(request: JobRequest) -> tuple[int, int]:
    return request.tasks_per_node * (request.cpus_per_task or 1), request.tasks_per_node


def _limits_min(order: SubmissionPlan, request: JobRequest) -> Iterator[int]:
    """Time limits of a job, by the profile and by Slurm."""
    limits = [rule.max_walltime_min for rule in order.profile.slurm.qos if rule.name == request.qos]
    yield from (limit for limit in (*limits, order.longest_min) if limit is not None)
