"""One attempt, from the rendezvous of the ranks to end.json, with the damaged pictures that its ranks came upon."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hpcddp.core.attempt_records import DamagedFiles, GateResult
from hpcddp.core.catalog import check_workload
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, data_root_as_given
from hpcddp.core.point import Point
from hpcddp.core.point_rules import check_point
from hpcddp.core.text import count
from hpcddp.data import Source, open_source
from hpcddp.data.fingerprint import data_fingerprint
from hpcddp.data.pictures.imagenet import EvalImages, damaged_of_all
from hpcddp.worker import gates
from hpcddp.worker.attempt_records import RunFacts, record_comm_end, record_comm_launch, record_end, record_training_launch
from hpcddp.worker.barriers import final_barrier
from hpcddp.worker.comm.bench import bench_comm
from hpcddp.worker.comm.transport import record_transport
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.staging import StagedData, staged_data
from hpcddp.worker.telemetry.reader_process import finish_telemetry, start_reader
from hpcddp.worker.training.evaluate import Evaluation, evaluate
from hpcddp.worker.training.feeds import training_source
from hpcddp.worker.training.models import flops_of_sharded, flops_per_sample
from hpcddp.worker.training.resume import find_start, history_of
from hpcddp.worker.training.trainer import apply_settings
from hpcddp.worker.training_run import TrainingRun, measure_further, prepare_training, train_timed
from hpcddp.worker.watchdog.thread import Watchdog, stepping

NAMED = 5
"""Pictures that end.json names, with the reason."""


def damaged_files(group: ProcessGroup, sources: Mapping[str, tuple[Source | None, int]]) -> dict[str, DamagedFiles]:
    """By split, on rank 0; nothing elsewhere. All ranks call it. `sources`: with how many samples the ranks read in all."""
    found = {}
    for split, (source, read) in sources.items():
        if isinstance(source, EvalImages):
            indices = damaged_of_all(group.gather(f"damaged {split}", source.damaged.packed()))
            if indices:
                first = tuple(f"{printable(source.name(index))} ({source.why_damaged(index)})" for index in indices[:NAMED])
                pictures = max(min(read, len(source)), len(indices))  # batches are read ahead of the last step
                found[split] = DamagedFiles(pictures=len(indices), read=pictures, first=first)
    return found


def printable(name: str) -> str:
    r"""The name with what is no character of a line as `\n` and `\udcff`."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in name)


def run_attempt(spec: JobSpec, rank: Rank, attempt: Path) -> dict[str, object]:
    """Meets, measures, records; the summary of this rank. Errors are the caller's to record."""
    check_launched(spec.point, rank)
    group = join(rank, spec.point.device)
    measure = _bench if spec.point.work == "comm" else _train
    with Watchdog(rank, group.store, attempt, spec.point) as watchdog:
        result = measure(spec, replace(group, watchdog=watchdog), attempt)
    return {"point": spec.point.id, "run": spec.run, "rank": rank.rank, **result}


def _train(spec: JobSpec, group: ProcessGroup, attempt: Path) -> dict[str, object]:
    """Trains and, if it came to the run's last step, evaluates; how many steps, and on rank 0 whether all gates passed."""
    apply_settings(spec.point.workload)
    with staged_data(spec, group) as staged:
        return _train_on(staged, spec, group, attempt)


def _train_on(staged: StagedData, spec: JobSpec, group: ProcessGroup, attempt: Path) -> dict[str, object]:
    source, data = training_source(staged.spec), staged.spec.point.workload.data
    evaluated = open_source(data, "eval", data_root_as_given(staged.spec)) if spec.point.evaluates else None
    data_gates = _compare_data(spec.point, group, source, evaluated)
    start = find_start(spec, group, attempt, len(source))
    reader = start_reader(spec.point, group.rank, attempt)
    description = reader.description if reader else None
    record_training_launch(
        spec, group, attempt, samples=len(source), telemetry=description, resumed=start.record, staging=staged.record
    )
    record_transport(group, attempt)
    training = prepare_training(spec, (source, evaluated), group, attempt, start)
    with contextlib.closing(training.feed):
        with stepping(group.watchdog, training.log.timer, reader.pid if reader else None):
            result = train_timed(training)
        trained_s = time.monotonic()
        steady_from = result.protocol.steady_from_step
        telemetry = finish_telemetry(reader, spec.point, group, attempt, steady_from, plan=training.feed.plan)
        complete = not result.interrupted
        # Before the profile, whose steps train further.
        evaluation = _evaluate_at_end(training, evaluated) if evaluated is not None and complete else None
        epoch_rows, epoch_crc32 = (training.epochs.finish() if training.epochs else None) or (None, None)
        comm_check = measure_further(training) if complete else None
    trained = (result.steps - result.first_step) * spec.point.global_batch
    facts = RunFacts(
        early_gates=data_gates,
        evaluation=evaluation,
        compile_s=training.compile_s,
        comm_check=comm_check,
        telemetry=telemetry,
        flops_per_sample=_flops_per_sample(training, source) if group.rank.rank == 0 else None,
        history=history_of(start, attempt, result.steps),
        epoch_rows=epoch_rows,
        epoch_crc32=epoch_crc32,
        damaged=damaged_files(group, {"train": (source, trained), "eval": (evaluated, len(evaluated) if evaluated else 0)}),
    )
    passed = record_end(spec, group, attempt, result, facts)
    final_barrier(group, timedelta(seconds=time.monotonic() - trained_s))
    return {"steps": result.steps, "gates_passed": passed}


def _flops_per_sample(training: TrainingRun, source: Source) -> int | None:
    if training.trainer.sharding:
        return flops_of_sharded(training.spec.point.workload, source)
    return flops_per_sample(training.trainer.module, source.shape)


def _evaluate_at_end(training: TrainingRun, evaluated: Source) -> Evaluation | None:
    """The counts, on rank 0; those of the last epoch where epochs were evaluated as they ended."""
    if training.epochs:
        return training.epochs.evaluation()
    return evaluate(training.spec.point.workload, evaluated, training.trainer, training.group)


def _bench(spec: JobSpec, group: ProcessGroup, attempt: Path) -> dict[str, object]:
    record_comm_launch(spec, group, attempt)
    record_transport(group, attempt)
    passed = record_comm_end(spec, group, attempt, bench_comm(group))
    group.leave()
    return {"gates_passed": passed}


def check_launched(point: Point, rank: Rank) -> None:
    """HpcddpError where the point cannot be, or is not what was launched."""
    if point.work != "comm":
        check_workload(point.workload)
        check_point(point)
    if (rank.nodes, rank.world) != (point.layout.nodes, point.ranks):
        raise HpcddpError(
            f"The step has {_size(rank.world, rank.nodes)}; the spec has {_size(point.ranks, point.layout.nodes)}. Make "
            f"layout.nodes and layout.gpus_per_node of the spec agree with --nodes and --ntasks-per-node of the script."
        )
    if rank.launcher != point.layout.launcher:
        raise HpcddpError(
            f"{rank.launcher.capitalize()} started the ranks; layout.launcher of the spec is {point.layout.launcher}. Render the "
            f"script again with `--set layout.launcher={rank.launcher}`."
        )


def _size(ranks: int, nodes: int) -> str:
    return f"{count(ranks, 'rank')} on {count(nodes, 'node')}"


def _compare_data(point: Point, group: ProcessGroup, train: Source, evaluated: Source | None) -> list[GateResult]:
    """On rank 0 the gate that all see the same data, before hours are spent; nothing elsewhere. All ranks call it."""
    if group.rank.world == 1:
        return []
    workers, order_of = point.workload.loader_workers, (point.workload.seed, point.global_batch)
    splits = {"train": data_fingerprint(train, order_of=order_of, workers=workers)}
    if evaluated is not None:
        splits["eval"] = data_fingerprint(evaluated, order_of=None, workers=workers)
    ranks = group.gather_records("data", gates.RankData(host=group.rank.host, splits=splits))
    found = [gates.same_data(ranks)] if ranks else []
    for gate in found:
        if not gate.passed:
            print(f"hpcddp: {gate.name}: {gate.evidence}. This run will be rejected.", file=sys.stderr, flush=True)
    return found
