"""What a sweep comes to before anything is submitted: points, node hours, files, bytes, and remarks worth reading first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import config_file
from hpcddp.core.catalog import is_on_disk
from hpcddp.core.hours import Budget, Hours
from hpcddp.core.point import Layout, Point, flat_keys
from hpcddp.core.text import count, first_few, merge_similar, size, table
from hpcddp.script.job_request import JobRequest
from hpcddp.script.resources import cores_per_rank, hours_at_most
from hpcddp.sweep.disk_usage import bytes_of, files_of
from hpcddp.sweep.expand import PlannedPoint

TITLES = {
    "workload.data.name": "data",
    "workload.loader_workers_per_rank": "workers",
    "workload.optimizer.name": "optimizer",
    "layout.node_type": "node type",
    "layout.physical_cores_per_rank": "cores/rank",
}
"""Columns that do not bear the last word of their key."""

SHOWN = ("layout.nodes", "layout.gpus_per_node", "workload.batch_per_gpu", "workload.data.root")
"""Keys that are in every table of points in other columns, or do not make another point."""


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One point of the plan; totals are over its runs."""

    label: str
    groups: tuple[str, ...]
    is_added: bool
    """A baseline that no group lists."""
    point: Mapping[str, object]
    """All of the point, as a sweep's axes name it: `workload.model` and so on."""
    nodes: int
    gpus: int | None
    """GPUs that train, on all nodes; None for a run on processors."""
    ranks: int
    batch_per_gpu: int | None
    """None where nothing is trained."""
    global_batch: int
    runs: int
    node_hours: float | None
    """At most: nodes x wall time x runs; None where there is no Slurm."""
    gpu_hours: float | None
    """The same of the GPUs asked for, used or not."""
    files: int
    bytes: int
    partition: str | None = None
    qos: str | None = None
    """None, as for the partition: not asked for."""


def plan_row(planned: PlannedPoint, request: JobRequest | None, repeat: int, walltime_min: float) -> PlanRow:
    """The row of one point, run `repeat` times for `walltime_min` at most."""
    point = planned.point
    hours = None if request is None else hours_at_most(request) * repeat
    return PlanRow(
        label=point.label,
        groups=planned.groups,
        is_added=planned.is_added,
        point=flat_keys(point),
        nodes=point.layout.nodes,
        gpus=point.layout.nodes * point.layout.gpus_per_node if point.device == "cuda" else None,
        ranks=point.ranks,
        batch_per_gpu=None if point.work == "comm" else point.workload.batch_per_gpu,
        global_batch=point.global_batch,
        runs=repeat,
        node_hours=None if hours is None else hours.node,
        gpu_hours=None if hours is None else hours.gpu,
        files=repeat * files_of(point),
        bytes=repeat * bytes_of(point, walltime_min),
        partition=None if request is None else request.partition,
        qos=None if request is None else request.qos,
    )


def distinguishing_keys(rows: Sequence[PlanRow]) -> dict[str, str]:
    """Title -> key of everything in which the points differ and that their size does not say already."""
    keys = dict.fromkeys(key for row in rows for key in row.point if key not in SHOWN)
    return {
        TITLES.get(key, key.rpartition(".")[2]): key
        for key in keys
        if any(row.point.get(key) != rows[0].point.get(key) for row in rows)
    }


def points_table(rows: Sequence[PlanRow], columns: Mapping[str, Sequence[object]]) -> str:
    """A line for each point: its label, what distinguishes it from the others, and these columns (title -> value of each row)."""
    keys = distinguishing_keys(rows)
    lines = [
        (row.label, *(row.point.get(key) for key in keys.values()), *values)
        for row, *values in zip(rows, *columns.values(), strict=True)
    ]
    return table(("point", *keys, *columns), lines, left=("point", *keys, "partition", "qos", "groups"))


def queue_columns(rows: Sequence[PlanRow]) -> dict[str, Sequence[object]]:
    """Partition and QOS of each point as columns, each where points differ in it."""
    columns = {"partition": [row.partition for row in rows], "qos": [row.qos for row in rows]}
    return {title: values for title, values in columns.items() if len(set(values)) > 1}


def queue_words(rows: Sequence[PlanRow]) -> str | None:
    """The partition and QOS that all points have alike; None where there is no Slurm, or nothing they have alike."""
    columns = queue_columns(rows)
    if not rows or rows[0].node_hours is None or len(columns) > 1:
        return None
    partition = f"partition {rows[0].partition}" if rows[0].partition else "no partition asked for"
    qos = f"QOS {rows[0].qos}" if rows[0].qos else "no QOS asked for"
    return "all points: " + ", ".join([partition] * ("partition" not in columns) + [qos] * ("qos" not in columns))


def plan_text(rows: Sequence[PlanRow]) -> str:
    """All points with what they come to, their partition and QOS, and the sums below."""
    columns: dict[str, Sequence[object]] = {
        "nodes": [row.nodes for row in rows],
        "GPUs": [row.gpus for row in rows],
        "ranks": [row.ranks for row in rows],
        "batch/rank": [row.batch_per_gpu for row in rows],
        "batch": [row.global_batch for row in rows],
        "runs": [row.runs for row in rows],
        "node-h": [_hours_text(row.node_hours) for row in rows],
        "GPU-h": [_hours_text(row.gpu_hours) for row in rows],
        "files": [row.files for row in rows],
        "size": [size(row.bytes) for row in rows],
        **queue_columns(rows),
        "groups": [" ".join(row.groups) for row in rows],
    }
    total, most = totals(rows), total_hours(rows)
    parts = [count(total.points, "point"), count(total.runs, "run"), *([] if most is None else [f"at most {most}"])]
    lines = (points_table(rows, columns), queue_words(rows), ", ".join([*parts, count(total.files, "file"), size(total.bytes)]))
    return "\n".join(line for line in lines if line is not None)


def _hours_text(hours: float | None) -> str | None:
    return None if hours is None else f"{hours:.1f}"


def plan_plain(rows: Sequence[PlanRow]) -> dict[str, object]:
    """The rows and their sums, for JSON."""
    return {"totals": asdict(totals(rows)), "points": [asdict(row) for row in rows]}


def baseline_words(points: Sequence[PlannedPoint]) -> str:
    """`1 GPU and 1 node`: what speedups of these points will be relative to; empty where it is neither."""
    trained = [planned.point for planned in points if planned.point.work != "comm"]
    on_one_node = {point.layout.gpus_per_node for point in trained if point.layout.nodes == 1}
    full = max((point.layout.gpus_per_node for point in trained), default=1)
    one = "1 GPU" if any(point.device == "cuda" for point in trained) else "1 rank"
    return " and ".join([one] * (1 in on_one_node) + ["1 node"] * (full > 1 and full in on_one_node))


def added_words(points: Sequence[PlannedPoint]) -> list[str]:
    """A sentence on the baselines that were added to the points, where there are such."""
    added = [planned for planned in points if planned.is_added]
    if not added:
        return []
    names, groups = first_few([p.point.label for p in added]), ", ".join(dict.fromkeys(name for p in added for name in p.groups))
    return [f"added to compare {groups} with: {names}; `baselines: false` leaves {'it' if len(added) == 1 else 'them'} out"]


def remarks(profile: ClusterProfile, points: Sequence[PlannedPoint]) -> Iterator[str]:
    """What a referee would ask about the request, a sentence each with the next step; each once for all points."""
    if points and profile.status == "retired":
        yield f"{profile.name} is retired: jobs can be rendered and checked on a twin, not run."
    yield from _few_cores(profile, [planned.point.layout for planned in points])
    yield from merge_similar(text for planned in points for text in _remarks_on(profile, planned.point))


def _few_cores(profile: ClusterProfile, layouts: Iterable[Layout]) -> Iterator[str]:
    """One sentence for each type of node, however many numbers of cores are tried there."""
    few: dict[tuple[str | None, int], set[int]] = {}
    for layout in layouts:
        node, cores = profile.node_type(layout.node_type), layout.physical_cores_per_rank
        if node.physical_cores and node.gpus and cores is not None and cores * node.gpus < node.physical_cores:
            few.setdefault((layout.node_type, node.physical_cores // node.gpus), set()).add(cores)
    for (node_type, share), numbers in few.items():
        yield (
            f"layout.physical_cores_per_rank is {', '.join(map(str, sorted(numbers)))}: a node of type {node_type} has {share} "
            f"physical cores per GPU, and data loading may starve on less. Set {share}, or keep it on purpose."
        )


def _remarks_on(profile: ClusterProfile, point: Point) -> Iterator[str]:
    node, layout = profile.node_type(point.layout.node_type), point.layout
    if point.device == "cpu" and node.gpus:
        yield f"device is cpu: the GPUs of {profile.name}'s nodes would stand idle. Set it to cuda, or keep it on purpose."
    if not layout.exclusive and not profile.slurm.always_exclusive:
        yield "layout.exclusive is false: strangers on a node slow a baseline and make a speedup look larger. Set it to true."
    workers, cores = point.workload.loader_workers_per_rank, cores_per_rank(point)
    if cores is not None and workers > cores * node.smt:
        yield (
            f"workload.loader_workers_per_rank is {workers}: a rank has {count(cores * node.smt, 'CPU')}, which reading "
            f"and training would share. Set at most {cores * node.smt}, or keep it on purpose."
        )


def without_folder(points: Sequence[PlannedPoint], data_roots: Mapping[str, str]) -> list[str]:
    """A sentence for each data set on disk that has no folder, neither in its points nor in the user's settings."""
    trained = (planned.point.workload.data for planned in points if planned.point.work != "comm")
    rootless = {data.name: data for data in trained if data.root is None}
    return [
        f"data `{name}` has no folder, so every run would fail: --set workload.data.root=FOLDER, "
        f"or `data_roots: {{{name}: FOLDER}}` in {config_file()}"
        for name, data in rootless.items()
        if name not in data_roots and is_on_disk(data)
    ]


def total_hours(rows: Sequence[PlanRow]) -> Hours | None:
    """What all rows may take at most; None where there is no Slurm."""
    parts = [(row.node_hours, row.gpu_hours) for row in rows]
    known = [Hours(node=node, gpu=gpu) for node, gpu in parts if node is not None and gpu is not None]
    return sum(known, Hours()) if len(known) == len(rows) else None


def beyond_budget(rows: Sequence[PlanRow], budget: Budget) -> list[str]:
    """A sentence where a study of all these runs may take more than its budget."""
    hours = total_hours(rows)
    if hours is None or budget.holds(hours):
        return []
    return [f"budget {budget}: these runs may take {hours}, and submit refuses what it does not hold"]


@dataclass(frozen=True, kw_only=True)
class PlanTotals:
    """Sums over the rows of a plan; None where a part is unknown."""

    points: int
    runs: int
    node_hours: float | None
    gpu_hours: float | None
    files: int
    bytes: int


def totals(rows: Sequence[PlanRow]) -> PlanTotals:
    """Sums over the plan."""
    hours = total_hours(rows)
    return PlanTotals(
        points=len(rows),
        runs=sum(row.runs for row in rows),
        node_hours=None if hours is None else hours.node,
        gpu_hours=None if hours is None else hours.gpu,
        files=sum(row.files for row in rows),
        bytes=sum(row.bytes for row in rows),
    )
