"""What a sweep comes to before anything is submitted: points, node hours, files, bytes, and remarks worth reading first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcddp.catalog import is_on_disk, train_samples
from hpcddp.cluster import ClusterProfile
from hpcddp.point import Point
from hpcddp.request import JobRequest, node_hours
from hpcddp.settings import config_file
from hpcddp.sweep import PlannedPoint

STEP_ROW_BYTES = 100
RANK_OVERHEAD_BYTES = 1_200
RUN_OVERHEAD_BYTES = 15_000
"""A row of ranks/*.steps.csv; logs and submitit's result per rank; launch.json, end.json, script and specification per run.
tests/twin/test_study_rcc.py holds them against what a study leaves."""

FILES_PER_RANK = 4
FILES_PER_NODE = 1
FILES_PER_RUN = 9
"""Step rows, two logs, submitit's result; nodes/HOST.json; point, launch, end, two batch logs, pickle, and script and link on
Slurm or specification and two markers locally."""


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One point of the plan; totals are over its runs."""

    label: str
    groups: tuple[str, ...]
    node_type: str | None
    nodes: int
    ranks: int
    batch_per_gpu: int
    global_batch: int
    loader_workers_per_rank: int
    runs: int
    node_hours: float | None
    """At most: nodes x wall time x runs; None where nothing is asked of Slurm."""
    files: int
    bytes: int


def plan_row(planned: PlannedPoint, request: JobRequest | None, repeat: int) -> PlanRow:
    """The row of one point, run `repeat` times."""
    point = planned.point
    return PlanRow(
        label=point.label,
        groups=planned.groups,
        node_type=point.layout.node_type,
        nodes=point.layout.nodes,
        ranks=point.ranks,
        batch_per_gpu=point.workload.batch_per_gpu,
        global_batch=point.global_batch,
        loader_workers_per_rank=point.workload.loader_workers_per_rank,
        runs=repeat,
        node_hours=None if request is None else node_hours(request) * repeat,
        files=repeat * (FILES_PER_RUN + FILES_PER_NODE * point.layout.nodes + FILES_PER_RANK * point.ranks),
        bytes=repeat * (RUN_OVERHEAD_BYTES + point.ranks * (RANK_OVERHEAD_BYTES + STEP_ROW_BYTES * steps_of(point))),
    )


def node_types(rows: Sequence[PlanRow]) -> list[str]:
    """The column that tells points of several node types apart, none where all have one."""
    return ["node type"] if len({row.node_type for row in rows}) > 1 else []


def steps_of(point: Point) -> int:
    """Optimizer steps of one run, warm-up included; an epoch of unknown length counts as the default number of steps."""
    samples = train_samples(point.workload.data)
    if point.work == "epoch" and samples is not None:
        return samples // point.global_batch
    return point.measure.warmup_steps + point.measure.steps


def remarks(profile: ClusterProfile, points: Sequence[PlannedPoint]) -> Iterator[str]:
    """What a referee would ask about the request, a sentence each with the next step; each once for all points."""
    if profile.status == "retired":
        yield f"{profile.name} is retired: jobs can be rendered and checked on a twin, not run."
    yield from dict.fromkeys(text for planned in points for text in _remarks_on(profile, planned.point))


def _remarks_on(profile: ClusterProfile, point: Point) -> Iterator[str]:
    node, layout = profile.node_type(point.layout.node_type), point.layout
    asked = layout.physical_cores_per_rank
    if node.physical_cores and node.gpus and asked is not None and asked * node.gpus < node.physical_cores:
        share = node.physical_cores // node.gpus
        yield (
            f"layout.physical_cores_per_rank is {asked}: a node of type {layout.node_type} has {share} physical cores per GPU, "
            f"and data loading may starve on less. Set {share}, or keep it on purpose."
        )
    if not layout.exclusive:
        yield "layout.exclusive is false: strangers on a node slow a baseline and make a speedup look larger. Set it to true."
    workers = point.workload.loader_workers_per_rank
    if asked is not None and workers > asked * node.smt:
        yield f"workload.loader_workers_per_rank is {workers}: a rank has {asked} physical cores ({asked * node.smt} CPUs)."


def without_folder(points: Sequence[PlannedPoint], data_roots: Mapping[str, str]) -> list[str]:
    """A sentence for each data set on disk that has no folder, neither in its points nor in the user's settings."""
    rootless = {data.name: data for data in (planned.point.workload.data for planned in points) if data.root is None}
    return [
        f"data `{name}` has no folder, so every run would fail: --set workload.data.root=FOLDER, "
        f"or `data_roots: {{{name}: FOLDER}}` in {config_file()}"
        for name, data in rootless.items()
        if name not in data_roots and is_on_disk(data)
    ]


def totals(rows: Sequence[PlanRow]) -> dict[str, Any]:
    """Sums over the plan, None where a part is unknown."""
    hours = [row.node_hours for row in rows]
    return {
        "points": len(rows),
        "runs": sum(row.runs for row in rows),
        "node_hours": None if None in hours else sum(hour for hour in hours if hour is not None),
        "files": sum(row.files for row in rows),
        "bytes": sum(row.bytes for row in rows),
    }
