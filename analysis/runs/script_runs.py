"""Points of a script of the user's own: what their runs found out of the workload completes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcddp.analysis.runs.run import Run
from hpcddp.core.launch_record import ScriptFacts
from hpcddp.core.own_script import completed
from hpcddp.core.point import Point


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
    alike = next((each for each in known if _arguments(each) == _arguments(point)), None)
    other = facts.get(alike.label) if alike else None
    if alike is None or other is None:
        return point
    samples = point.workload.samples_per_step or other.samples_per_step
    if hold == "global_batch":
        samples = max(1, alike.global_batch // point.gpus)
    return completed(point, replace(other, samples_per_step=samples))


def _arguments(point: Point) -> tuple[object, ...]:
    return point.workload.script, point.workload.args
