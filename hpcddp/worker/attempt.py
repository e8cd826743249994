"""One attempt from the first meeting of the ranks to end.json."""

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
from hpcddp.worker.training_run import look_closer, prepare, train_timed
from hpcddp.worker.watchdog.thread import Heart, stepping


def run_attempt(spec: JobSpec, rank: Rank, attempt: Path) -> dict[str, Any]:
    """Meets, measures, records; the summary of this rank. Errors are the caller's to record."""
    _check(spec.point, rank)
    meeting = join(rank, spec.point.device)
    measure = _bench if spec.point.work == "comm" else _train
    with Heart(rank, meeting.store, attempt, spec.point) as heart:
        told = measure(spec, replace(meeting, heart=heart), attempt)
    return {"point": spec.point.id, "run": spec.run, "rank": rank.rank, **told}


def _train(spec: JobSpec, meeting: ProcessGroup, attempt: Path) -> dict[str, Any]:
    """Trains and, if it came to the run's last step, evaluates; how many steps, and on rank 0 whether all gates passed."""
    apply_settings(spec.point.workload)
    source, evaluated = training_source(spec), _evaluation_source(spec)
    data_gates = compare_data(spec.point, meeting, source, evaluated)
    start = find_start(spec, meeting, attempt, len(source))
    sampler = telemetry.start(spec.point, meeting.rank, attempt)
    watched = sampler.about if sampler else None
    record_launch(spec, meeting, attempt, samples=len(source), watched=watched, resumed=start.record)
    trial = prepare(spec, source, meeting, attempt, start)
    with contextlib.closing(trial.feed):
        with stepping(meeting.heart, trial.log.timer, sampler.pid if sampler else None):
            told = train_timed(trial)
        trained_s = time.monotonic()
        watched = telemetry.finish(sampler, spec.point, meeting, attempt, told["protocol"]["steady_from_step"])
        whole = not told["interrupted"]
        # Before the profile, whose steps train further.
        evaluation = evaluate(spec.point.workload, evaluated, trial.learner, meeting) if evaluated is not None and whole else None
        closer = look_closer(trial) if whole else None
    facts: dict[str, Any] = {"early_gates": data_gates, "compile_s": trial.compile_s, "comm_check": closer, "telemetry": watched}
    facts["flops_per_sample"] = flops_per_sample(trial.learner.module, source.shape) if meeting.rank.rank == 0 else None
    facts["history"] = history_of(start, attempt, told["steps"])
    passed = record_end(spec, meeting, attempt, told, evaluation, **facts)
    leave_together(meeting, timedelta(seconds=time.monotonic() - trained_s))
    return {"steps": told["steps"], "gates_passed": passed}


def _bench(spec: JobSpec, meeting: ProcessGroup, attempt: Path) -> dict[str, Any]:
    record_launch(spec, meeting, attempt, samples=0)
    passed = run_comm(spec, meeting, attempt)
    meeting.leave()
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
