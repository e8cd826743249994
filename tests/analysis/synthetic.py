"""Run roots with told times, written by the records module itself: what comes out of analysis is known beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddp.point import Data, Layout, Measure, Point, Workload, point_to_dict
from hpcddp.records import PARTS, SCHEMA, STEP_COLUMNS, WARMUP, StepWriter, steps_file, write_json
from hpcddp.runroot import Study

MS = 1_000_000

WORKLOAD = Workload(model="resnet18", data=Data(name="synthetic-imagenet"))

PASSED = [{"name": "parameters agree", "passed": True, "evidence": "one checksum over all ranks"}]
FAILED = [*PASSED, {"name": "equal steps", "passed": False, "evidence": "rank 1 made 4 of 6 steps"}]


def point(nodes: int, gpus: int, **changes: Any) -> Point:
    """A point of a fixed workload; `changes` are fields of Point, or of Workload or Layout."""
    layout = {key: changes.pop(key) for key in tuple(changes) if key in Layout.__dataclass_fields__}
    workload = {key: changes.pop(key) for key in tuple(changes) if key in Workload.__dataclass_fields__}
    return Point(
        cluster="marconi100",
        workload=dataclasses.replace(WORKLOAD, **workload),
        layout=Layout(nodes=nodes, gpus_per_node=gpus, **layout),
        measure=Measure(warmup_steps=1, steps=5),
        **changes,
    )


def write_study(
    folder: Path, points: Sequence[Point], repeat: int = 1, hold: str = "batch_per_gpu", name: str | None = None
) -> Study:
    """study.json and the points; no run yet."""
    entries = [{"label": p.label, "id": p.id, "groups": ["nodes"]} for p in points]
    sweep = {"schema": 1, "cluster": "marconi100", "hold": hold, "work": points[0].work, "repeat": repeat}
    study = Study(folder)
    write_json(
        study.study_file,
        {"schema": 1, "hpcddp": "0", "name": name or folder.name, "sweep": sweep, "repeat": repeat, "points": entries},
    )
    for each in points:
        write_json(study.point_file(each.label), {"schema": SCHEMA, "id": each.id, "point": point_to_dict(each)})
    return study


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a run shall have measured."""

    step_ns: int | Callable[[int, int], int]
    """Every step's total, or a function of (rank, step); the warm-up step takes ten times as long."""
    shares: Mapping[str, float] = field(default_factory=lambda: {"forward": 0.25, "backward": 0.5})
    """Part -> share of the step, on all ranks; parts not named were not measured."""
    steps: int = 5
    gpu: str | None = "V100"
    env_id: str = "env-1"
    gates: Sequence[Mapping[str, Any]] = tuple(PASSED)
    state: str = "done"
    reason: str | None = None
    job: str = "100"
    restart: int = 0


def write_run(study: Study, point: Point, told: Told, run: int = 1) -> Path:
    """One attempt with all its files; returns its folder."""
    attempt = study.attempt_dir(point.label, run, told.job, told.restart)
    write_json(attempt / "launch.json", _launch(point, told, run))
    entries = [_write_rank(attempt, rank, told) for rank in range(point.ranks)]
    end = {
        "schema": SCHEMA,
        "state": told.state,
        "reason": told.reason,
        "gates": list(told.gates),
        "ranks": entries,
        "global_batch": point.global_batch,
        "steps": told.steps + 1,
        "loss_first": 2.5,
        "loss_last": 0.5,
        "evaluation": {"samples": 10_000, "correct": 9_000, "loss": 0.25},
    }
    write_json(attempt / "end.json", end)
    return attempt


def write_runs(study: Study, point: Point, step_ns: Sequence[int], **told: Any) -> None:
    """A run per step time, numbered from 1."""
    for run, each in enumerate(step_ns, start=1):
        write_run(study, point, Told(step_ns=each, job=str(100 + run), **told), run)


def _launch(point: Point, told: Told, run: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "point": point.id,
        "run": run,
        "job": told.job,
        "restart": told.restart,
        "backend": "slurm",
        "hosts": [f"r{node:03d}" for node in range(point.layout.nodes)],
        "ranks": point.ranks,
        "ranks_per_node": point.layout.gpus_per_node,
        "versions": {"torch": "2.7.1"},
        "env_id": told.env_id,
        "gpus": [told.gpu] if told.gpu else [],
        "profile": {},
        "started_unix_ns": 1_700_000_000_000_000_000,
    }


def _write_rank(attempt: Path, rank: int, told: Told) -> dict[str, Any]:
    with StepWriter(steps_file(attempt, rank)) as rows:
        for step in range(told.steps + 1):
            total = told.step_ns(rank, step) if callable(told.step_ns) else told.step_ns
            rows.row(_row(step, total if step else 10 * total, told.shares))
    return {"rank": rank, "host": f"r{rank:03d}", "rows": rows.rows, "crc32": rows.crc32}


def _row(step: int, total_ns: int, shares: Mapping[str, float]) -> tuple[int | None, ...]:
    cells: dict[str, int | None] = {name: None for name in STEP_COLUMNS}
    cells |= {"step": step, "flags": 0 if step else WARMUP, "start_ns": 1_700_000_000_000_000_000 + step, "total_ns": total_ns}
    cells |= {f"{part}_ns": int(shares[part] * total_ns) for part in PARTS if part in shares}
    return tuple(cells[name] for name in STEP_COLUMNS)


MARCONI100_EPOCH_S = {
    (1, 1): 3466,
    (1, 2): 2232,
    (1, 3): 1977,
    (1, 4): 1926,
    (2, 4): 1002,
    (4, 4): 514,
    (8, 4): 270,
    (16, 4): 139,
}
"""(nodes, GPUs per node) -> seconds per epoch: the Marconi100 thesis (Gherardi 2020), chapter 6, read from its tables."""

IMAGENET_SAMPLES = 1_281_167


def write_marconi100(folder: Path, repeat: int = 1) -> Study:
    """The thesis's node scaling as a study; with `repeat`, runs that differ by a few parts in a thousand."""
    points = {point(*layout, work="epoch"): epoch_s for layout, epoch_s in MARCONI100_EPOCH_S.items()}
    study = write_study(folder, list(points), repeat)
    for each, epoch_s in points.items():
        step_ns = epoch_s * 1e9 * each.global_batch / IMAGENET_SAMPLES
        write_runs(study, each, [round(step_ns * (1 + 0.004 * (i - (repeat - 1) / 2))) for i in range(repeat)])
    return study
