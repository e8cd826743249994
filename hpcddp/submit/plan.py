"""What a sweep comes to before anything is submitted: points, node hours, files, bytes, and remarks worth reading first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.hours import Budget, Hours
from hpcddp.core.point import flat_keys
from hpcddp.core.text import count, size, table, thousands
from hpcddp.script.job_request import JobRequest
from hpcddp.script.resources import hours_at_most
from hpcddp.sweep.disk_usage import run_bytes, run_files
from hpcddp.sweep.expand import PlannedPoint

TITLES = {
    "workload.data.name": "data",
    "workload.loader_workers_per_rank": "workers",
    "workload.optimizer.name": "optimizer",
    "layout.node_type": "node type",
    "layout.physical_cores_per_rank": "cores/rank",
    "workload.batch_per_gpu": "batch/GPU",
    "layout.gpus_per_node": "GPUs/node",
    "qos": "QOS",
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
    global_batch: int | None
    """None where only the user's script knows, as the batch per GPU."""
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
        batch_per_gpu=None if point.work == "comm" else point.workload.known_batch,
        global_batch=None if point.workload.known_batch is None else point.global_batch,
        runs=repeat,
        node_hours=None if hours is None else hours.node,
        gpu_hours=None if hours is None else hours.gpu,
        files=repeat * run_files(point),
        bytes=repeat * run_bytes(point, walltime_min),
        partition=None if request is None else request.partition,
        qos=None if request is None else request.qos,
    )


def differing_keys(rows: Sequence[PlanRow]) -> list[str]:
    """What the points differ in besides their size."""
    keys = dict.fromkeys(key for row in rows for key in row.point if key not in SHOWN)
    return [key for key in keys if any(row.point.get(key) != rows[0].point.get(key) for row in rows)]


def titles_of(keys: Sequence[str]) -> dict[str, str]:
    """Title -> key: its last word, or all of it where another ends so."""
    titles = [TITLES.get(key, key.rpartition(".")[2]) for key in keys]
    return {title if titles.count(title) == 1 else key: key for title, key in zip(titles, keys, strict=True)}


def points_table(rows: Sequence[PlanRow], columns: Mapping[str, Sequence[object]]) -> str:
    """A line for each point: its label, what distinguishes it from the others, and these columns (title -> value of each row)."""
    keys = titles_of(differing_keys(rows))
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
    alike = [] if rows[0].node_hours is None else [("partition", rows[0].partition), ("QOS", rows[0].qos)]
    alike = [(name, value) for name, value in alike if name.lower() not in queue_columns(rows)]
    return (
        "all points: " + ", ".join(f"{name} {value}" if value else f"no {name} asked for" for name, value in alike)
        if alike
        else None
    )


def plan_text(rows: Sequence[PlanRow]) -> str:
    """Each point with what it comes to, its partition and QOS, and the sums below."""
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
    lines = (points_table(rows, columns), queue_words(rows), ", ".join(totals_words(rows)))
    return "\n".join(line for line in lines if line is not None)


def totals_words(rows: Sequence[PlanRow]) -> tuple[str, str]:
    """`3 points, 18 runs, at most 14.0 node hours, 56.0 GPU hours` and `978 files, 62 MB`."""
    hours = total_hours(rows)
    parts = [count(len(rows), "point"), count(sum(row.runs for row in rows), "run"), *([f"at most {hours}"] if hours else [])]
    return ", ".join(parts), f"{count(sum(row.files for row in rows), 'file')}, {size(sum(row.bytes for row in rows))}"


def cost_words(profile: ClusterProfile, rows: Sequence[PlanRow]) -> str:
    """`, at most 1,234 USD`; empty where the profile has no price for a row's nodes."""
    prices = {name: node.usd_per_hour for name, node in profile.node_types.items()}
    costs = [(row.node_hours, prices.get(str(row.point["layout.node_type"]))) for row in rows]
    usd = [hours * price for hours, price in costs if hours is not None and price is not None]
    return f", at most {thousands(sum(usd))} USD" if len(usd) == len(rows) else ""


def _hours_text(hours: float | None) -> str | None:
    return None if hours is None else f"{hours:.1f}"


def plan_plain(rows: Sequence[PlanRow]) -> dict[str, object]:
    """The rows and their sums, for JSON."""
    return {"totals": totals(rows), "points": [asdict(row) for row in rows]}


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
    return [
        f"These runs may take {hours}, more than the budget of {budget}, so `hpcddp submit` would refuse them. Raise the budget."
    ]


def totals(rows: Sequence[PlanRow]) -> dict[str, object]:
    """Sums over the plan; None where a part is unknown."""
    hours = total_hours(rows)
    return {
        "points": len(rows),
        "runs": sum(row.runs for row in rows),
        "node_hours": None if hours is None else hours.node,
        "gpu_hours": None if hours is None else hours.gpu,
        "files": sum(row.files for row in rows),
        "bytes": sum(row.bytes for row in rows),
    }
