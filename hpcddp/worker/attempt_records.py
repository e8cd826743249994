"""The records of an attempt as a whole: launch.json and nodes/ when the ranks have met, end.json when all have trained."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcddp.core.attempt_records import (
    CommCheck,
    CommEnd,
    DamagedFiles,
    GateResult,
    RankEnd,
    RankName,
    ShardedExchange,
    Telemetry,
    TrainingEnd,
)
from hpcddp.core.comm_record import CommBench, CommRecord
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.launch_record import LaunchRecord, NodeRecord, Resumed, Staging, StepRange, TrainingLaunch
from hpcddp.core.point import Point, to_json
from hpcddp.core.records import SCHEMA, SHARDED_PARTS, write_json
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker import gates
from hpcddp.worker.checksums import shards_agree
from hpcddp.worker.comm.trace import mean_exchange
from hpcddp.worker.finish import write_end
from hpcddp.worker.launch_record import launch_record, node_facts
from hpcddp.worker.rank_result import RankResult, loader_times
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.evaluate import Evaluation
from hpcddp.worker.training.sharding import METHOD


def record_training_launch(  # noqa: PLR0913 - what is launched, and what rank 0 and this node know beside it
    spec: JobSpec,
    group: ProcessGroup,
    attempt: Path,
    *,
    samples: int,
    telemetry: Mapping[str, Any] | None,
    resumed: Resumed | None,
    staging: Staging | None = None,
) -> None:
    """`telemetry`: what is read on this node, and how often; `staging`: what copying the data took."""
    launch = _record_node(spec, group, attempt, samples, telemetry)
    if launch:
        launch = replace(launch, data=replace(launch.data, staging=staging))
        _write_launch(spec, TrainingLaunch(**vars(launch), resumed=resumed), attempt)


def record_comm_launch(spec: JobSpec, group: ProcessGroup, attempt: Path) -> None:
    """Of a benchmark of collectives."""
    launch = _record_node(spec, group, attempt, samples=0, telemetry=None)
    if launch:
        _write_launch(spec, launch, attempt)


def _record_node(
    spec: JobSpec, group: ProcessGroup, attempt: Path, samples: int, telemetry: Mapping[str, Any] | None
) -> LaunchRecord | None:
    """Writes the node's record on its first rank; launch.json on rank 0, None elsewhere."""
    host = group.rank.host
    if group.rank.local_rank == 0:
        write_json(attempt / "nodes" / f"{host}.json", encode(NodeRecord(**vars(node_facts(host)), telemetry=telemetry)))
    return launch_record(spec, group, samples)


def _write_launch(spec: JobSpec, launch: LaunchRecord, attempt: Path) -> None:
    write_json(attempt / "launch.json", encode(launch))
    what = f"{spec.label}, run {spec.run}: {launch.ranks} rank(s) on {', '.join(launch.hosts)} by {launch.communication}"
    print(f"hpcddp: {what}; records in {attempt}", flush=True)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What rank 0 knows of an attempt beside the ranks' results."""

    early_gates: Sequence[GateResult]
    """Of before the first step."""
    evaluation: Evaluation | None
    compile_s: float | None
    comm_check: CommCheck | None
    telemetry: Telemetry | None
    flops_per_sample: int | None
    history: Sequence[StepRange]
    epoch_rows: int | None
    epoch_crc32: int | None
    """Of epochs.csv; None where epochs are not what the point trains."""
    tokens_per_step: int | None = None
    damaged: Mapping[str, DamagedFiles] = field(default_factory=dict)
    """By split."""


def record_end(spec: JobSpec, group: ProcessGroup, attempt: Path, result: RankResult, facts: RunFacts) -> bool | None:
    """Writes end.json on rank 0, when all ranks have closed their files; whether all gates passed, None on other ranks.

    `result`: what this rank found.
    """
    ranks = group.gather_records("trained", result)
    if not ranks:
        return None
    evaluated = [facts.evaluation[1]] if facts.evaluation else []
    end = TrainingEnd(
        state="interrupted" if result.interrupted else "done",
        reason=result.reason,
        ended_unix_ns=time.time_ns(),
        gates=(*facts.early_gates, *run_gates(spec, ranks, facts.telemetry), *evaluated),
        ranks=tuple(map(_rank_end, ranks)),
        global_batch=spec.point.global_batch,
        first_step=result.first_step,
        steps=result.steps,
        protocol=result.protocol,
        loss_first=_mean([entry.loss_first for entry in ranks]),
        loss_last=_mean([entry.loss_last for entry in ranks]),
        evaluation=facts.evaluation[0] if facts.evaluation else None,
        compile_s=facts.compile_s,
        comm_check=facts.comm_check,
        sharded_exchange=_sharded_exchange(ranks, result.protocol.timed_steps),
        profiled_exchange=mean_exchange([entry.profiled for entry in ranks]),
        telemetry=facts.telemetry,
        loader=loader_times([entry.reads for entry in ranks]),
        flops_per_sample=facts.flops_per_sample,
        tokens_per_step=facts.tokens_per_step,
        history=tuple(facts.history),
        epoch_rows=facts.epoch_rows,
        epoch_crc32=facts.epoch_crc32,
        damaged=facts.damaged,
    )
    write_end(attempt, end)
    return all(gate.passed for gate in end.gates)


def record_comm_end(spec: JobSpec, group: ProcessGroup, attempt: Path, found: CommBench) -> bool | None:
    """Writes comm.json and end.json on rank 0: there whether all gates passed, None elsewhere."""
    digest = hashlib.sha256(to_json(encode(found)).encode()).hexdigest()[:12]
    ranks = group.gather("comm", {"rank": group.rank.rank, "host": group.rank.host, "digest": digest})
    if not ranks:
        return None
    write_json(attempt / "comm.json", encode(CommRecord(schema=SCHEMA, point=spec.point.id, run=spec.run, **vars(found))))
    checked = (gates.collectives_correct(found.ops), gates.ranks_agree([entry["digest"] for entry in ranks]))
    names = tuple(decode_record(RankName, entry) for entry in ranks)
    write_end(attempt, CommEnd(state="done", reason=None, ended_unix_ns=time.time_ns(), gates=checked, ranks=names))
    return all(gate.passed for gate in checked)


def _rank_end(result: RankResult) -> RankEnd:
    return RankEnd(
        rank=result.rank,
        host=result.host,
        rows=result.rows,
        crc32=result.crc32,
        bucket_rows=result.bucket_rows,
        bucket_crc32=result.bucket_crc32,
        clock=result.clock,
        peak_memory_bytes=result.peak_memory_bytes,
    )


def _sharded_exchange(ranks: Sequence[RankResult], steps: int | None) -> ShardedExchange | None:
    """None where it was not measured, on any rank."""
    found = [entry.sharded_ns for entry in ranks if entry.sharded_ns]
    if len(found) < len(ranks) or not steps:
        return None
    means_s = {f"{part}_s": sum(rank[part] for rank in found) / len(found) / steps / 1e9 for part in SHARDED_PARTS}
    return ShardedExchange(method=METHOD, **means_s)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


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
