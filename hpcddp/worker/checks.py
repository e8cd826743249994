"""Which gates a run has, from what all ranks found."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.core.attempt_records import GateResult, Telemetry
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.worker import gates
from hpcddp.worker.checksums import shards_agree
from hpcddp.worker.rank_result import RankResult


def run_gates(spec: JobSpec, ranks: Sequence[RankResult], telemetry: Telemetry | None) -> list[GateResult]:
    """A gate for which nothing was found is left out."""
    found = _of_script(spec.point, ranks) if spec.point.own_loop else _of_training(spec, ranks)
    return [*found, *_of_nodes(spec, ranks, telemetry)]


def _of_training(spec: JobSpec, ranks: Sequence[RankResult]) -> list[GateResult]:
    first = ranks[0]
    found = [
        _of_parameters(spec.point, ranks),
        gates.loss_is_finite([entry.finite for entry in ranks]),
        gates.ranks_stepped_equally([entry.rows for entry in ranks], first.steps - first.first_step),
        gates.every_epoch_reshuffled([entry.repeated_epoch for entry in ranks], first.epochs),
        gates.no_restart_inside([entry.row_break for entry in ranks], first.protocol.timed_steps or 0),
    ]
    buffers = [entry.buffers for entry in ranks]
    if any(buffers):
        found.append(gates.buffers_agree(buffers))
    if len(ranks) > 1:
        found.append(gates.ranks_compute_the_same(ranks, rounding_key(spec.point), _differing(found)))
    return found


def _of_parameters(point: Point, ranks: Sequence[RankResult]) -> GateResult:
    sums = [entry.checksums for entry in ranks]
    if not point.sharded:
        return gates.parameters_agree(sums)
    trains = point.measure.input != "io" and point.workload.optimizer.lr > 0
    return shards_agree(sums, point.shards, trains=trains)


def _of_script(point: Point, ranks: Sequence[RankResult]) -> list[GateResult]:
    """Of the user's own loop, what could be read of it."""
    first = ranks[0]
    found = [
        gates.ranks_stepped_equally([entry.rows for entry in ranks], first.steps - first.first_step),
        gates.no_restart_inside([entry.row_break for entry in ranks], first.protocol.timed_steps or 0),
    ]
    if all(entry.checksums for entry in ranks):
        found.append(gates.parameters_agree([entry.checksums for entry in ranks]))
    if any(entry.loss_first is not None or not entry.finite for entry in ranks):
        found.append(gates.loss_is_finite([entry.finite for entry in ranks]))
    if any(entry.samples for entry in ranks):
        found.append(gates.samples_as_declared([entry.samples for entry in ranks], point.workload.batch_per_gpu))
    return found


def _of_nodes(spec: JobSpec, ranks: Sequence[RankResult], telemetry: Telemetry | None) -> list[GateResult]:
    measured = telemetry.nodes if telemetry else ()
    nodes, foreign = [entry.node for entry in ranks if entry.node], {node.host: node.cpu_foreign_share for node in measured}
    reserved = spec.point.layout.exclusive if spec.backend == "slurm" else None
    found = [gates.nodes_are_ours(nodes, [foreign.get(node.host) for node in nodes], reserved)]
    gpus = [(str(node.host), gpu) for node in measured for gpu in node.gpus]
    if any(gpu.throttle is not None for _, gpu in gpus):
        found.append(gates.gpu_clocks_held(gpus))
    return found


def rounding_key(point: Point) -> str:
    """Of gates.ROUNDING. Of GPUs of several types some may have TF32, which torch allows in convolutions."""
    chosen = point.workload.precision
    return "tf32" if chosen == "fp32" and point.device == "cuda" else chosen


def _differing(found: Sequence[GateResult]) -> str | None:
    """What differs by rank already; None where nothing does."""
    failed = [gate.name for gate in found if not gate.passed]
    return next((name.split()[0] for name in failed if name in ("parameters agree", "buffers agree")), None)
