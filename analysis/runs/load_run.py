"""One run from its attempts: whether it counts, otherwise why not, and its statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcddp.analysis.records.attempt_files import read_comm, read_end, read_launch
from hpcddp.analysis.records.attempts import Part, buckets_of, read_parts
from hpcddp.analysis.records.buckets import joined_hosts
from hpcddp.analysis.records.impossible import check_end, missing_gate
from hpcddp.analysis.records.merged_end import whole_end
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.records.schema import End, check_shape
from hpcddp.analysis.records.steps import RECORDED, joined, mean_step_ns, part_mean_ns
from hpcddp.analysis.runs.communication import communication
from hpcddp.analysis.runs.distribution import distribution
from hpcddp.analysis.runs.find_step import read_timeline
from hpcddp.analysis.runs.intervals import mean_half_percent
from hpcddp.analysis.runs.long_steps import stalls
from hpcddp.analysis.runs.rank_map import rank_map
from hpcddp.analysis.runs.resources import Used, used
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.signals import early, read_signals, rhythm
from hpcddp.analysis.runs.slow_ranks import unevenness
from hpcddp.analysis.runs.typical import typical_step, windows_apart
from hpcddp.core.catalog import train_samples
from hpcddp.core.run_root import job_of
from hpcddp.core.text import one_line


def load_run(attempts: Sequence[Path], blank: Run, outcomes: Mapping[str, str], warnings: list[str]) -> Run:
    """The run by its newest attempt that ended `done`, and those whose steps it went on from; `blank` where there is none.

    `outcomes`: job -> why it failed, where that is known. What is odd but harmless is added to `warnings`.
    """
    why = "not started"
    for attempt in reversed(attempts):
        end = read_end(attempt, warnings)
        if end is not None and end.get("state") == "done":
            return _done_run(replace(blank, state="rejected", attempt=attempt.name), attempt, end, warnings)
        if why == "not started":
            why = _why_not_done(attempt, end, outcomes)
    if why == "not started" and outcomes:
        job, failed = list(outcomes.items())[-1]
        why = f"{why}: job {job} failed: {failed}"
    return replace(blank, reason=one_line(why))


def _why_not_done(attempt: Path, end: Mapping[str, Any] | None, outcomes: Mapping[str, str]) -> str:
    if end is None:
        failed = outcomes.get(job_of(attempt))
        return f"attempt {attempt.name} failed: {failed}" if failed else f"attempt {attempt.name} has not ended"
    became = "was interrupted" if end.get("state") == "interrupted" else "failed"
    return f"attempt {attempt.name} {became}: {end.get('reason') or 'reason unknown'}"


def _done_run(found: Run, attempt: Path, end: dict[str, Any], warnings: list[str]) -> Run:
    """The run of an attempt that ended `done`; what is known of it is kept even where it is rejected."""
    try:
        launch = read_launch(attempt, found.point)
        check_shape(end, End, "end.json")
        found = _described(found, attempt, [launch], end)
        check_end(end, found.point)
        if found.trains:
            parts = read_parts(attempt, launch, end, found.point, warnings)
            end = whole_end(parts, end)
            found = _timed(_with_restarts(_described(found, attempt, [part.launch for part in parts], end), end, parts), parts)
            buckets = buckets_of(parts, attempt, warnings)
            found = replace(found, exchange=communication(buckets) if buckets else None)
            found = replace(found, timeline=read_timeline(parts, joined([part.steps for part in parts])))
        else:
            found = replace(found, collectives=read_comm(attempt))
        failed = failed_gates(end) or missing_gate(end, launch, found.trains)
    except Rejected as reason:
        return replace(found, reason=one_line(str(reason)))
    except KeyError as key:
        return replace(found, reason=f"launch.json or end.json lacks {key}")
    return replace(found, reason=one_line(failed)) if failed else replace(found, state="counts")


def _described(run: Run, attempt: Path, launches: Sequence[Mapping[str, Any]], end: dict[str, Any]) -> Run:
    """`launches`: of all its attempts, the last one's at the end."""
    evaluation, protocol, checked = (end.get(name) or {} for name in ("evaluation", "protocol", "comm_check"))
    launch = launches[-1]
    gpu = " + ".join(sorted({gpu for each in launches for gpu in each["gpus"]})) or None
    return replace(
        run,
        env_id=launch["env_id"],
        gpu=gpu,
        fabric_gbps=((launch.get("profile") or {}).get("fabric") or {}).get("gbps_per_node"),
        global_batch=end["global_batch"] if run.trains else None,
        epoch_samples=_epoch_samples(run, launch),
        used=used(run.point, gpu, launch, end) if run.point else Used(),
        seen=read_signals(attempt, run.point, launch, end),
        stopped_by=protocol.get("stopped_by"),
        warmup_detected_steps=protocol.get("warmup_detected_steps"),
        comm_check=checked.get("sentence"),
        comm_check_closes=checked.get("closes"),
        loss_first=end.get("loss_first"),
        loss_last=end.get("loss_last"),
        eval_samples=evaluation.get("samples"),
        eval_correct=evaluation.get("correct"),
    )


def _epoch_samples(run: Run, launch: Mapping[str, Any]) -> int | None:
    """As the run found its data, otherwise as the catalogue has it."""
    found: int | None = (launch.get("data") or {}).get("samples")
    return found or (train_samples(run.point.workload.data) if run.point and run.trains else None)


def _with_restarts(run: Run, end: Mapping[str, Any], parts: Sequence[Part]) -> Run:
    history = end.get("history") or []
    made = sum(stretch["steps"] for stretch in history)
    return replace(
        run,
        restarts=sum(stretch["attempt"] != run.attempt for stretch in history),
        lost_steps=made - sum(part.steps.step.size for part in parts) if history else 0,
    )


def _timed(run: Run, parts: Sequence[Part]) -> Run:
    """No time spans a restart: each step is one attempt's, and each attempt's warm-up is left out."""
    steps = joined([part.steps for part in parts])
    step_ns = mean_step_ns(steps)
    if step_ns is None or step_ns <= 0:
        raise Rejected(f"no timed step: all {steps.steady.size} belong to the warm-up or were not measured")
    warming = np.concatenate([_warming(part) for part in parts])
    found = stalls(steps, ~warming)
    hosts = joined_hosts([part.hosts for part in parts])
    return replace(
        run,
        steady_steps=int(steps.steady.sum()),
        timed_ns=int(steps.sum_ns[steps.steady].sum()),
        step_ns=float(step_ns),
        typical=typical_step(steps),
        step_ci_percent=mean_half_percent(steps.sum_ns[steps.steady] / len(steps.window_ns)),
        windows_apart=windows_apart(steps),
        part_ns={part: part_mean_ns(steps, part) for part in RECORDED},
        early=early(steps, warming, found is not None),
        rhythm=rhythm(steps),
        stalls=found,
        distribution=distribution([part.steps for part in parts]),
        rank_map=rank_map(steps, hosts),
        unevenness=unevenness(steps, hosts),
    )


def _warming(part: Part) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Of each step, whether the attempt saw its warm-up end later."""
    ended_after: int = (part.end.get("protocol") or {}).get("warmup_detected_steps") or 0
    return np.arange(part.steps.steady.size) < ended_after


def failed_gates(end: Mapping[str, Any]) -> str | None:
    """The gates that failed with their evidence, in words; None where all passed."""
    failed = [gate for gate in end["gates"] if not gate["passed"]]
    return "; ".join(f"gate `{gate['name']}`: {gate['evidence']}" for gate in failed) or None
