"""The gates of a run: what each rank tells of itself at its end, and what rank 0 concludes from all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.worker import gates
from hpcddp.worker.buffers import buffers_at_next_forward
from hpcddp.worker.node_share import node_share
from hpcddp.worker.ranks import Rank
from hpcddp.worker.timing.timeline import first_break
from hpcddp.worker.training.trainer import Trainer


def rank_result(spec: JobSpec, rank: Rank, trainer: Trainer, attempt: Path) -> dict[str, Any]:
    """All ranks call it when they have trained, before they evaluate: DDP's broadcast is one of all."""
    return {
        "buffers": buffers_at_next_forward(trainer),
        "break": first_break(attempt, rank.rank),
        "node": node_share(spec, rank) if rank.local_rank == 0 else None,
    }


def run_gates(spec: JobSpec, ranks: list[dict[str, Any]], telemetry: dict[str, Any] | None) -> list[gates.Gate]:
    """`ranks`: of each what Trained holds and what told_of_rank gave. A gate that has nothing to look at is left out."""
    steps = ranks[0]["steps"] - ranks[0]["first_step"]
    found = [
        gates.parameters_agree([entry["checksums"] for entry in ranks]),
        gates.loss_is_finite([entry["finite"] for entry in ranks]),
        gates.ranks_stepped_equally([entry["rows"] for entry in ranks], steps),
        gates.every_epoch_reshuffled([entry["repeated_epoch"] for entry in ranks], ranks[0]["epochs"]),
        gates.no_restart_inside([entry["break"] for entry in ranks], ranks[0]["protocol"]["timed_steps"]),
    ]
    buffers = [entry["buffers"] for entry in ranks]
    if any(buffers):
        found.append(gates.buffers_agree(buffers))
    if len(ranks) > 1:
        found.append(gates.ranks_compute_the_same(ranks, arithmetic(spec.point), _differing(found)))
    reserved = spec.point.layout.exclusive if spec.backend == "slurm" else None
    nodes = [entry["node"] for entry in ranks if entry["node"]]
    found.append(gates.nodes_are_ours(_with_foreign_use(nodes, telemetry), reserved))
    gpus = [{**gpu, "host": node["host"]} for node in (telemetry or {}).get("nodes", ()) for gpu in node["gpus"]]
    if any(gpu["throttle"] is not None for gpu in gpus):
        found.append(gates.gpu_clocks_held(gpus))
    return found


def arithmetic(point: Point) -> str:
    """Of gates.ROUNDING. Of GPUs of several types some may have TF32, which torch allows in convolutions."""
    chosen = point.workload.precision
    return "tf32" if chosen == "fp32" and point.device == "cuda" else chosen


def _differing(found: list[gates.Gate]) -> str | None:
    """What differs by rank already; None where nothing does."""
    failed = [gate["name"] for gate in found if not gate["passed"]]
    return next((name.split()[0] for name in failed if name in ("parameters agree", "buffers agree")), None)


def _with_foreign_use(nodes: list[dict[str, Any]], telemetry: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Each node with the share of its CPU time that others took in the timed steps (`foreign`, None if unknown)."""
    foreign = {node["host"]: node["cpu_foreign_share"] for node in (telemetry or {}).get("nodes", ())}
    return [{**node, "foreign": foreign.get(node["host"])} for node in nodes]
