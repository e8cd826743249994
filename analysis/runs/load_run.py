"""One run from its attempts: whether it counts, otherwise why not, and its statistics. A script's runs complete its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpcddp.analysis.records import json_files
from hpcddp.analysis.records.attempts import AttemptRecords, buckets_of_run, merged_end, read_attempts
from hpcddp.analysis.records.buckets import joined_hosts
from hpcddp.analysis.records.epochs import Epoch, check_batches, read_epochs
from hpcddp.analysis.records.rows import RECORDED, Rejected
from hpcddp.analysis.records.steps import joined, mean_step_ns, part_mean_ns, samples_of_steps, some
from hpcddp.analysis.runs import step_times
from hpcddp.analysis.runs.communication import communication, read_network
from hpcddp.analysis.runs.resources import Used, gpu_arithmetic, read_readings, used
from hpcddp.analysis.runs.run import NOT_STARTED, Run
from hpcddp.analysis.runs.signals import early, read_signals, rhythm, slow_start
from hpcddp.analysis.runs.slow_ranks import rank_map, unevenness
from hpcddp.analysis.runs.timeline import read_timeline
from hpcddp.analysis.util.files import record_or_none
from hpcddp.core.attempt_records import CommCheck, CommEnd, EvaluationResult, TrainingEnd
from hpcddp.core.catalog import train_samples
from hpcddp.core.launch_record import LaunchRecord, NodeRecord, ScriptFacts
from hpcddp.core.own_script import completed
from hpcddp.core.point import Point
from hpcddp.core.run_root import job_of
from hpcddp.core.start_up import start_up
from hpcddp.core.text import one_line


def with_script(run: Run, facts: ScriptFacts | None) -> Run:
    """The run with what its job found out."""
    if facts is None or run.point is None:
        return run
    return replace(run, script=facts, point=completed(run.point, facts))


def completed_points(points: Sequence[Point], runs: Sequence[Run], hold: str) -> list[Point]:
    """Those that are scripts completed by their runs or, where a point has none, by runs of its arguments at another size."""
    known = [run.point for run in runs if run.script and run.point]
    return [_completed(point, known, runs, hold) if point.workload.script else point for point in points]


def _completed(point: Point, known: Sequence[Point], runs: Sequence[Run], hold: str) -> Point:
    facts = {run.label: run.script for run in runs if run.script}
    if own := facts.get(point.label):
        return completed(point, own)
    arguments = point.workload.script, point.workload.args
    alike = next((each for each in known if (each.workload.script, each.workload.args) == arguments), None)
    other = facts.get(alike.label) if alike else None
    if alike is None or other is None:
        return point
    samples = point.workload.samples_per_step or other.samples_per_step
    if hold == "global_batch":
        samples = max(1, alike.global_batch // point.gpus)
    return completed(point, replace(other, samples_per_step=samples))


def load_run(attempts: Sequence[Path], blank: Run, outcomes: Mapping[str, str], warnings: list[str]) -> Run:
    """The run by its newest attempt that ended `done`, and those whose steps it went on from; `blank` where there is none.

    `outcomes`: job -> why it failed, where that is known. What is odd but harmless is added to `warnings`.
    """
    why = NOT_STARTED
    for attempt in reversed(attempts):
        end = json_files.read_end_file(attempt, warnings)
        if end is not None and end.state == "done":
            return _done_run(replace(blank, state="rejected", attempt=attempt.name), attempt, end, warnings)
        if why == NOT_STARTED:
            why = _why_not_done(attempt, end, outcomes)
    if why == NOT_STARTED and outcomes:
        job, failed = list(outcomes.items())[-1]
        why = f"{why}: job {job} failed: {failed}"
    return replace(blank, reason=one_line(why))


def _why_not_done(attempt: Path, end: json_files.EndFile | None, outcomes: Mapping[str, str]) -> str:
    if end is None:
        failed = outcomes.get(job_of(attempt))
        return f"attempt {attempt.name} failed: {failed}" if failed else f"attempt {attempt.name} has not ended"
    became = "was interrupted" if end.state == "interrupted" else "failed"
    return f"attempt {attempt.name} {became}: {end.reason or 'reason unknown'}"


def _done_run(run: Run, attempt: Path, file: json_files.EndFile, warnings: list[str]) -> Run:
    """The run of an attempt that ended `done`; what is known of it stays even where it is rejected."""
    try:
        launch = json_files.read_launch(attempt, run.point)
        run = replace(run, network=read_network(attempt, run.point, launch))
        if run.trains:
            end = file.decoded(TrainingEnd)
            nodes = [record_or_none(NodeRecord, file) for file in (attempt / "nodes").glob("*.json") if not launch.gpus]
            processors = tuple(sorted({node.cpu for node in nodes if node and node.cpu}))
            run = replace(run, start_up=start_up(attempt, launch), processors=processors)
            run = _trained(_launched(run, [launch]), attempt, launch, end)
            json_files.check_end(end, run.point)
            epochs = read_epochs(attempt, end, warnings)
            if epochs and run.point:
                check_batches(epochs, run.point)
            parts = read_attempts(attempt, launch, end, run.point, warnings, epoch_ends=[each.step for each in epochs or ()])
            end = merged_end(parts, end)
            run = _trained(_launched(run, [part.launch for part in parts]), attempt, launch, end)
            run = _timed(run, parts, epochs)
            if end.history:
                run = replace(
                    run,
                    restarts=sum(stretch.attempt != run.attempt for stretch in end.history),
                    lost_steps=sum(stretch.steps for stretch in end.history) - sum(part.steps.step.size for part in parts),
                )
            if epochs:  # their rows count samples exactly, whatever the batch of each step
                run = replace(run, epochs=epochs, samples_trained=epochs[-1].samples)
            buckets = buckets_of_run(parts, attempt, warnings)
            run = replace(run, exchange=communication(buckets) if buckets else None)
            run = replace(run, timeline=read_timeline(parts, joined([part.steps for part in parts])))
            gates = end.gates
        else:
            gates = file.decoded(CommEnd).gates
            run = _launched(run, [launch])
            run = replace(run, signals=read_signals(attempt, run.point, launch, gates), collectives=json_files.read_comm(attempt))
        failed = "; ".join(f"check `{gate.name}`: {gate.evidence}" for gate in gates if not gate.passed)
        why = failed or json_files.missing_gate(gates, launch, run.trains)
    except Rejected as reason:
        return replace(run, reason=one_line(str(reason)))
    return replace(run, reason=one_line(why)) if why else replace(run, state="counts")


def _launched(run: Run, launches: Sequence[LaunchRecord]) -> Run:
    """The run, completed by what launch.json says; `launches`: of all its attempts, the last one's at the end."""
    launch = launches[-1]
    run = with_script(run, launch.script)
    gpu = " + ".join(sorted({gpu for each in launches for gpu in each.gpus})) or None
    return replace(
        run,
        env_id=launch.env_id,
        software=json_files.launch_software(launch),
        started_unix_ns=launches[0].started_unix_ns,
        gpu=gpu,
        fabric_gbps=launch.profile_facts().fabric.gbps_per_node,
        epoch_samples=launch.data.samples or (train_samples(run.point.workload.data) if run.point and run.trains else None),
        decoder=launch.data.decoder,
        unofficial=launch.data.unofficial or (),
        staging=launch.data.staging,
        used=Used(arithmetic=gpu_arithmetic(run.point.workload.precision, gpu, launch)) if run.point else Used(),
    )


OF_END = ("global_batch", "damaged", "loader", "loss_first", "loss_last")


def _trained(run: Run, attempt: Path, launch: LaunchRecord, end: TrainingEnd) -> Run:
    evaluation, checked = end.evaluation or EvaluationResult(), end.comm_check or CommCheck()
    return replace(
        run,
        **{name: getattr(end, name) for name in OF_END},
        used=used(run.used, run.point, end),
        readings=read_readings(attempt, run.point, launch, end.telemetry) if run.point else run.readings,
        signals=read_signals(attempt, run.point, launch, end.gates, end.telemetry),
        stopped_by=end.protocol.stopped_by,
        warmup_detected_steps=end.protocol.warmup_detected_steps,
        comm_check=checked.sentence,
        comm_check_closes=checked.closes,
        sharded=end.sharded_exchange,
        profiled=end.profiled_exchange,
        **{f"eval_{name}": getattr(evaluation, name) for name in ("samples", "correct", "loss")},
    )


def _timed(run: Run, attempts: Sequence[AttemptRecords], epochs: Sequence[Epoch] | None) -> Run:
    """No time spans a restart: each step is one attempt's, and each attempt's warm-up is left out.

    Where the batch grows, rate, step and parts are of all steady steps; what compares steps with each other is of those of the
    batch that most of them have.
    """
    stretches = [each.steps for each in attempts]
    steps = joined(stretches)
    step_ns = mean_step_ns(steps)
    if step_ns is None or step_ns <= 0:
        raise Rejected(f"no timed step: all {steps.steady.size} belong to the warm-up or were not measured")
    batches = [samples_of_steps(each, step_times.batch_of_steps(each.step, epochs, run.global_batch or 0)) for each in stretches]
    steady_batches = np.concatenate(batches)[steps.steady]
    steady_samples = step_times.samples_of(steady_batches)
    if steps.samples is not None and np.isfinite(steps.samples).all():
        run = _per_passed(run, steady_samples)
    detected = [each.end.protocol.warmup_detected_steps or 0 if each.end else 0 for each in attempts]
    warmings = [np.arange(each.step.size) < steps for each, steps in zip(stretches, detected, strict=True)]
    batch = step_times.most_often(steady_batches, most=not epochs)
    if batch is not None:
        alike = [found == batch for found in batches]
        stretches = [some(each, which) for each, which in zip(stretches, alike, strict=True) if which.any()]
        warmings = [each[which] for each, which in zip(warmings, alike, strict=True) if which.any()]
    of_batch, warming = joined(stretches), np.concatenate(warmings)
    even = step_times.evened(of_batch, step_times.begins_epoch(of_batch.step, epochs))
    if not (warming & even.steady).any():
        warming = slow_start(even)
    found = step_times.run_stalls(even, ~warming)
    hosts = joined_hosts([each.hosts for each in attempts])
    only_loads = run.point is not None and run.point.measure.input == "io"
    return replace(
        run,
        steady_steps=int(steps.steady.sum()),
        timed_ns=int(steps.sum_ns[steps.steady].sum()),
        step_ns=float(step_ns),
        steady_samples=steady_samples,
        typical=step_times.typical_step(of_batch),
        step_ci_percent=step_times.mean_half_percent(even.sum_ns[even.steady] / len(steps.window_ns)),
        windows_apart=step_times.windows_apart(steps),
        part_ns={part: part_mean_ns(steps, part) for part in RECORDED},
        timed_epochs=tuple(step_times.timed_epochs(steps.step[steps.steady], epochs).tolist()),
        first_wait_ns=part_mean_ns(some(steps, step_times.begins_epoch(steps.step, epochs)), "data_wait"),
        early=early(even, warming, found is not None),
        rhythm=rhythm(even),
        stalls=found,
        distribution=step_times.distribution(stretches),
        samples_trained=None if only_loads or not run.global_batch else step_times.samples_trained(steps, run.global_batch),
        losses=step_times.loss_ends(steps, run.loss_first, run.loss_last),
        rank_map=rank_map(steps, hosts),
        unevenness=unevenness(steps, hosts),
    )


def _per_passed(run: Run, samples: int | None) -> Run:
    """Its energy is of the samples that passed; the attempt took the batch that its script declares."""
    nodes, joules = run.readings.nodes, run.used.energy_j_per_1000_samples
    taken = nodes[0].samples if nodes else None
    if not samples or not taken:
        return run
    readings = replace(run.readings, nodes=tuple(replace(node, samples=samples) for node in nodes))
    per_passed = None if joules is None else joules * taken / samples
    return replace(run, readings=readings, used=replace(run.used, energy_j_per_1000_samples=per_passed))
