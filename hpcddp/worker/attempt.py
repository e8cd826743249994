"""One attempt, from the rendezvous of the ranks to end.json."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from hpcddp.core.catalog import check_workload
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.paths import data_root_as_given
from hpcddp.core.point import Point
from hpcddp.core.point_rules import check_point
from hpcddp.data import Source, open_source
from hpcddp.worker.attempt_records import record_end, record_launch
from hpcddp.worker.barriers import leave_together
from hpcddp.worker.comm.attempt import run_comm
from hpcddp.worker.data_check import compare_data
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.telemetry import sampling as telemetry
from hpcddp.worker.telemetry.flops import flops_per_sample
from hpcddp.worker.training.evaluate import evaluate
from hpcddp.worker.training.feeds import training_source
from hpcddp.worker.training.resume import find_start, history_of
from hpcddp.worker.training.torch_settings import apply_settings
from hpcddp.worker.training_run import measure_further, prepare, train_timed
from hpcddp.worker.watchdog.thread import Watchdog, stepping


def run_attempt(spec: JobSpec, rank: Rank, attempt: Path) -> dict[str, Any]:
    """Meets, measures, records; the summary of this rank. Errors are the caller's to record."""
    _check(spec.point, rank)
    group = join(rank, spec.point.device)
    measure = _bench if spec.point.work == "comm" else _train
    with Watchdog(rank, group.store, attempt, spec.point) as watchdog:
        told = measure(spec, replace(group, watchdog=watchdog), attempt)
    return {"point": spec.point.id, "run": spec.run, "rank": rank.rank, **told}


def _train(spec: JobSpec, group: ProcessGroup, attempt: Path) -> dict[str, Any]:
    """Trains and, if it came to the run's last step, evaluates; how many steps, and on rank 0 whether all gates passed."""
    workload = spec.point.workload
    apply_settings(workload)
    source, evaluated = training_source(spec), _evaluation_source(spec)
    data_gates = compare_data(spec.point, group, source, evaluated)
    start = find_start(spec, group, attempt, len(source))
    sampler = telemetry.start(spec.point, group.rank, attempt)
    watched = sampler.about if sampler else None
    record_launch(spec, group, attempt, samples=len(source), watched=watched, resumed=start.record)
    training = prepare(spec, source, group, attempt, start)
    with contextlib.closing(training.feed):
        with stepping(group.watchdog, training.log.timer, sampler.pid if sampler else None):
            told = train_timed(training)
        trained_s = time.monotonic()
        watched = telemetry.finish(sampler, spec.point, group, attempt, told["protocol"]["steady_from_step"])
        complete = not told["interrupted"]
        # Before the profile, whose steps train further.
        evaluation = evaluate(workload, evaluated, training.trainer, group) if evaluated is not None and complete else None
        comm_check = measure_further(training) if complete else None
    facts: dict[str, Any] = {"compile_s": training.compile_s, "comm_check": comm_check, "telemetry": watched}
    facts["flops_per_sample"] = flops_per_sample(training.trainer.module, source.shape) if group.rank.rank == 0 else None
    facts["history"] = history_of(start, attempt, told["steps"])
    passed = record_end(spec, group, attempt, told, evaluation, early_gates=data_gates, **facts)
    leave_together(group, timedelta(seconds=time.monotonic() - trained_s))
    return {"steps": told["steps"], "gates_passed": passed}


def _bench(spec: JobSpec, group: ProcessGroup, attempt: Path) -> dict[str, Any]:
    record_launch(spec, group, attempt, samples=0)
    passed = run_comm(spec, group, attempt)
    group.leave()
    return {"gates_passed": passed}


def _check(point: Point, rank: Rank) -> None:
    """HpcddpError where the point cannot be, or is not what was launched."""
    if point.work != "comm":
        check_workload(point.workload)
        check_point(point)
    if rank.world != point.ranks or rank.nodes != point.layout.nodes:
        raise HpcddpError(
            f"the step has {rank.world} ranks on {rank.nodes} node(s), the point asks for {point.ranks} on {point.layout.nodes}: "
            f"look at --nodes and --ntasks-per-node"
        )
    if rank.launcher != point.layout.launcher:
        raise HpcddpError(
            f"the ranks were started by {rank.launcher}, and the point's layout.launcher is {point.layout.launcher}: start "
            f"them so, or render the point with --set layout.launcher={rank.launcher}"
        )


def _evaluation_source(spec: JobSpec) -> Source | None:
    """None where nothing is evaluated."""
    if not spec.point.measure.evaluate:
        return None
    return open_source(spec.point.workload.data, "eval", data_root_as_given(spec))
