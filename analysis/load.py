"""A study's records as values: which runs count, which are rejected and why, which are missing.

Of each run the newest attempt that ended `done` counts. One run is read at a time and reduced to its statistics at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from hpcddp.analysis.ranks import Rejected, read_steps
from hpcddp.analysis.steps import RunSteps, median_step_ns, part_median_ns
from hpcddp.errors import HpcddpError
from hpcddp.point import Point, point_from_dict
from hpcddp.records import PARTS, SCHEMA
from hpcddp.runroot import Study
from hpcddp.schema import SchemaError


@dataclass(frozen=True, kw_only=True)
class Run:
    """One repetition of a point; None is unknown."""

    label: str
    run: int
    state: Literal["counts", "rejected", "missing"]
    reason: str | None = None
    """Why it does not count."""
    point: Point | None = None
    attempt: str | None = None
    """JOB.RESTART"""
    env_id: str | None = None
    gpu: str | None = None
    """The GPUs' names, each once, joined by ` + `; None on a CPU."""
    global_batch: int | None = None
    steady_steps: int | None = None
    step_ns: float | None = None
    part_ns: Mapping[str, float | None] | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    eval_samples: int | None = None
    eval_correct: int | None = None

    @property
    def name(self) -> str:
        """As a reader finds it: `r2 of n01-g4-b32-3fa9c1d2e07b`."""
        return f"r{self.run} of {self.label}"


@dataclass(frozen=True)
class StudyRecords:
    """All runs of a study, by label and number; `points` are the planned ones whose point.json is there."""

    name: str
    hold: str
    """`batch_per_gpu` or `global_batch`: what stays constant as ranks grow."""
    points: tuple[Point, ...]
    runs: tuple[Run, ...]
    warnings: tuple[str, ...]


def load_study(study: Study) -> StudyRecords:
    """Reads a study's folder; HpcddpError where study.json or a point.json is damaged."""
    asked = _read_object(study.study_file) if study.study_file.is_file() else {}
    entries = [entry for entry in asked.get("points", []) if study.has_point(entry["label"])]
    expected = {entry["label"]: range(1, entry.get("repeat", asked["repeat"]) + 1) for entry in entries}
    points = {file.parent.name: _read_point(file) for file in study.folder.glob("*/point.json")}
    warnings: list[str] = []
    runs = [
        load_run(study, label, run, points.get(label), warnings)
        for label in sorted({*expected, *points})
        for run in sorted({*expected.get(label, ()), *_run_numbers(study, label)})
    ]
    return StudyRecords(
        name=asked.get("name", study.folder.resolve().name),
        hold=asked.get("sweep", {}).get("hold", "batch_per_gpu"),
        points=tuple(point for _, point in sorted(points.items())),
        runs=tuple(runs),
        warnings=tuple(warnings),
    )


def load_run(study: Study, label: str, run: int, point: Point | None, warnings: list[str]) -> Run:
    """The run by its newest attempt that ended `done`; what is odd but harmless is added to `warnings`."""
    blank = Run(label=label, run=run, state="missing", point=point)
    why = "not started"
    for attempt in reversed(study.attempts(label, run)):
        end = _read_end(attempt, warnings)
        if end is not None and end.get("state") == "done":
            return _done_run(replace(blank, state="rejected", attempt=attempt.name), attempt, end, warnings)
        if why == "not started":
            why = _why_not_done(attempt, end)
    return replace(blank, reason=why)


def _why_not_done(attempt: Path, end: dict[str, Any] | None) -> str:
    if end is None:
        return f"attempt {attempt.name} has not ended"
    return f"attempt {attempt.name} failed: {end.get('reason') or 'reason unknown'}"


def _done_run(found: Run, attempt: Path, end: dict[str, Any], warnings: list[str]) -> Run:
    """The run of an attempt that ended `done`; what is known of it is kept even where it is rejected."""
    try:
        launch = _read_launch(attempt, found)
        found = _described(found, launch, end)
        found = _timed(found, read_steps(attempt, end, launch["ranks"], warnings))
        failed = failed_gates(end)
    except Rejected as reason:
        return replace(found, reason=str(reason))
    except KeyError as key:
        return replace(found, reason=f"launch.json or end.json lacks {key}")
    return replace(found, reason=failed) if failed else replace(found, state="counts")


def _read_launch(attempt: Path, run: Run) -> dict[str, Any]:
    """launch.json; Rejected where it is damaged, newer than this reader or of another point than the folder's."""
    if run.point is None or run.point.label != run.label:
        raise Rejected(f"point.json of {run.label} is missing or of another point")
    try:
        launch = _read_object(attempt / "launch.json")
    except (HpcddpError, FileNotFoundError) as error:
        raise Rejected("launch.json is damaged or missing") from error
    if launch["schema"] != SCHEMA:
        raise Rejected(f"records of schema {launch['schema']}; this hpcddp reads {SCHEMA}")
    if launch["point"] != run.point.id:
        raise Rejected(f"launch.json is of another point, {launch['point']}")
    return launch


def _described(run: Run, launch: dict[str, Any], end: dict[str, Any]) -> Run:
    evaluation = end.get("evaluation") or {}
    return replace(
        run,
        env_id=launch["env_id"],
        gpu=" + ".join(sorted(set(launch["gpus"]))) or None,
        global_batch=end["global_batch"],
        loss_first=end.get("loss_first"),
        loss_last=end.get("loss_last"),
        eval_samples=evaluation.get("samples"),
        eval_correct=evaluation.get("correct"),
    )


def _timed(run: Run, steps: RunSteps) -> Run:
    step_ns = median_step_ns(steps)
    if not step_ns:
        raise Rejected(f"no timed step: all {steps.steady.size} belong to the warm-up or were not measured")
    parts = {part: part_median_ns(steps, part) for part in PARTS}
    return replace(run, steady_steps=int(steps.steady.sum()), step_ns=step_ns, part_ns=parts)


def failed_gates(end: dict[str, Any]) -> str | None:
    """The gates that failed with their evidence, in words; None where all passed."""
    failed = [gate for gate in end["gates"] if not gate["passed"]]
    return "; ".join(f"gate `{gate['name']}`: {gate['evidence']}" for gate in failed) or None


def _read_end(attempt: Path, warnings: list[str]) -> dict[str, Any] | None:
    """end.json; None where there is none or (with a warning) it cannot be read."""
    file = attempt / "end.json"
    if not file.is_file():
        return None
    try:
        return _read_object(file)
    except HpcddpError:
        warnings.append(f"{'/'.join(file.parts[-4:])} is damaged; the attempt counts as not ended")
        return None


def _read_point(file: Path) -> Point:
    try:
        return point_from_dict(_read_object(file)["point"])
    except (SchemaError, KeyError) as error:
        raise HpcddpError(f"{file}: {error}; submit the sweep again to write it anew, or move the folder away") from error


def _read_object(file: Path) -> dict[str, Any]:
    try:
        plain = json.loads(file.read_bytes())
    except ValueError as error:
        raise HpcddpError(f"{file} is damaged: {error}") from error
    if not isinstance(plain, dict):
        raise HpcddpError(f"{file} is damaged: it holds no JSON object")
    return cast(dict[str, Any], plain)


def _run_numbers(study: Study, label: str) -> list[int]:
    found = (re.fullmatch(r"r(\d+)", path.name) for path in (study.folder / label).glob("r*"))
    return [int(match[1]) for match in found if match]
