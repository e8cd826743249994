"""Run roots with times that are given, written by the records module itself: what comes out of analysis is known beforehand."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddp.core.point import Data, Layout, Measure, Point, Workload, point_to_dict
from hpcddp.core.prediction import PredictedPoint, PredictionRecord
from hpcddp.core.records import (
    AFTER_PAUSE,
    BUCKET_COLUMNS,
    EPOCH_COLUMNS,
    PARTS,
    SCHEMA,
    STEP_COLUMNS,
    STEP_ROWS,
    WARMUP,
    RowWriter,
    buckets_file,
    epochs_file,
    steps_file,
    write_json,
)
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode

MS = 1_000_000
START_NS = 1_700_000_000_000_000_000

WORKLOAD = Workload(model="resnet18", data=Data(name="synthetic-imagenet"))

PASSED = [{"name": "parameters agree", "passed": True, "evidence": "one checksum over all ranks"}]
FAILED = [*PASSED, {"name": "equal steps", "passed": False, "evidence": "rank 1 made 4 of 6 steps"}]


def point(nodes: int, gpus: int, **changes: Any) -> Point:
    """A point of a fixed workload; `changes` are fields of Point, or of Workload, Layout or Measure."""
    layout = {key: changes.pop(key) for key in tuple(changes) if key in Layout.__dataclass_fields__}
    workload = {key: changes.pop(key) for key in tuple(changes) if key in Workload.__dataclass_fields__}
    measure = {key: changes.pop(key) for key in tuple(changes) if key in Measure.__dataclass_fields__}
    return Point(
        cluster="marconi100",
        workload=dataclasses.replace(WORKLOAD, **workload),
        layout=Layout(nodes=nodes, gpus_per_node=gpus, **layout),
        measure=dataclasses.replace(Measure(warmup_steps=1, steps=5), **measure),
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


def write_prediction(study: Study, *points: PredictedPoint) -> None:
    """prediction.json of these points."""
    write_json(study.prediction_file, encode(PredictionRecord(points=points)))


def predicted(each: Point, samples_per_s: float, off: float = 0.1, **known: Any) -> PredictedPoint:
    """With a band of so much to both sides."""
    low, high = (1 - off) * samples_per_s, (1 + off) * samples_per_s
    return PredictedPoint(label=each.label, samples_per_s=samples_per_s, low=low, high=high, **known)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One all-reduce; times since the step began."""

    size_bytes: int
    ready_ns: int
    done_ns: int


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a run shall have measured."""

    step_ns: int | Callable[[int, int], int]
    """Every step's total, or a function of (rank, step); the warm-up step takes ten times as long."""
    shares: Mapping[str, float] | Callable[[int], Mapping[str, float]] = field(
        default_factory=lambda: {"forward": 0.25, "backward": 0.5}
    )
    """Part -> share of the step, on all ranks, or a function of the step; parts not named were not measured."""
    shares_of_rank: Mapping[int, Mapping[str, float] | Callable[[int], Mapping[str, float]]] = field(default_factory=dict)
    """Of ranks that differ."""
    steps: int = 5
    """Timed ones; a warm-up step comes before them."""
    pauses: Sequence[int] = ()
    """Steps that come after a pause."""
    first_step: int = 0
    """The run's step with which the attempt began."""
    loss: Callable[[int, int], int | None] | None = None
    """A function of (rank, step): the step's mean loss x 10^9. None: rows without losses, as the first versions wrote them."""
    samples: int | None = None
    """Of a step on each rank, as rows of a script's own loop say."""
    epochs: Sequence[Sequence[int | None]] = ()
    """Rows of epochs.csv, of a point with `work: train`."""
    starts: bool = True
    """Whether rows say when their step began."""
    bucket_steps: Sequence[int] | None = None
    """Steps whose all-reduces are recorded; None: all."""
    buckets: Sequence[Bucket | Callable[[int], Bucket]] = ()
    """All-reduces of every steady step, the same on all ranks, or a function of the rank."""
    clocks: Mapping[int, int] = field(default_factory=dict)
    """Rank -> how far its timeline is behind rank 0's, ns; its times are written as it would have."""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] = field(default_factory=dict)
    of_rank: Mapping[str, Any] = field(default_factory=dict)
    """What else launch.json, end.json and its entry of each rank hold."""
    gpu: str | None = "V100"
    env_id: str = "env-1"
    gates: Sequence[Mapping[str, Any]] = tuple(PASSED)
    state: str = "done"
    reason: str | None = None
    job: str = "100"
    restart: int = 0


def write_run(study: Study, point: Point, recorded: Recorded, run: int = 1) -> Path:
    """One attempt with all its files; returns its folder."""
    attempt = study.attempt_dir(point.label, run, recorded.job, recorded.restart)
    write_json(attempt / "launch.json", _launch(point, recorded, run))
    entries = [_write_rank(attempt, rank, recorded) for rank in range(point.ranks)]
    end = {
        "schema": SCHEMA,
        "state": recorded.state,
        "reason": recorded.reason,
        "gates": list(recorded.gates),
        "ranks": entries,
        "global_batch": point.global_batch,
        "first_step": recorded.first_step,
        "steps": recorded.first_step + recorded.steps + 1,
        "loss_first": 2.5,
        "loss_last": 0.5,
        "protocol": dict(recorded.protocol),
        "evaluation": {"samples": 10_000, "correct": 9_000, "loss": 0.25},
        **(_write_epochs(attempt, recorded.epochs) if recorded.epochs else {}),
        **recorded.end,
    }
    write_json(attempt / "end.json", end)
    return attempt


def write_runs(study: Study, point: Point, step_ns: Sequence[int], **changes: Any) -> None:
    """A run per step time, numbered from 1."""
    for run, each in enumerate(step_ns, start=1):
        write_run(study, point, Recorded(step_ns=each, job=str(100 + run), **changes), run)


def write_measured(
    folder: Path, steps_ms: Mapping[Point, Sequence[float]] | Sequence[Point], ms: Sequence[float] = (100,), **changes: Any
) -> Study:
    """A study with a run per step time of each point, of points alone those of `ms`; `hold` is the study's."""
    times = steps_ms if isinstance(steps_ms, Mapping) else dict.fromkeys(steps_ms, ms)
    study = write_study(folder, list(times), max(map(len, times.values())), changes.pop("hold", "batch_per_gpu"))
    for each, of_runs in times.items():
        write_runs(study, each, [round(step * MS) for step in of_runs], **changes)
    return study


def _launch(point: Point, recorded: Recorded, run: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "point": point.id,
        "run": run,
        "job": recorded.job,
        "restart": recorded.restart,
        "backend": "slurm",
        "hosts": [f"r{node:03d}" for node in range(point.layout.nodes)],
        "ranks": point.ranks,
        "ranks_per_node": point.layout.gpus_per_node,
        "versions": {"torch": "2.7.1"},
        "env_id": recorded.env_id,
        "gpus": [recorded.gpu] if recorded.gpu else [],
        "profile": {},
        "started_unix_ns": 1_700_000_000_000_000_000,
        **({"step_rows": STEP_ROWS} if recorded.loss or recorded.samples else {}),
        **recorded.launch,
    }


def _write_rank(attempt: Path, rank: int, recorded: Recorded) -> dict[str, Any]:
    start_ns = START_NS - recorded.clocks.get(rank, 0)
    entry = {"rank": rank, "host": f"r{rank:03d}", **_clock(start_ns, recorded.clocks.get(rank, 0)), **recorded.of_rank}
    buckets = [bucket(rank) if callable(bucket) else bucket for bucket in recorded.buckets]
    with RowWriter(steps_file(attempt, rank), STEP_COLUMNS) as rows, contextlib.ExitStack() as more:
        travels = more.enter_context(RowWriter(buckets_file(attempt, rank), BUCKET_COLUMNS)) if buckets else None
        for step in range(recorded.steps + 1):
            number = recorded.first_step + step
            total = recorded.step_ns(rank, number) if callable(recorded.step_ns) else recorded.step_ns
            total *= 1 if step else 10
            shares = recorded.shares_of_rank.get(rank) or recorded.shares
            shares = shares(number) if callable(shares) else shares
            flags = (AFTER_PAUSE if number in recorded.pauses else 0) if step else WARMUP
            cells = _row(number, flags, start_ns if recorded.starts else None, total, shares)
            loss = recorded.loss(rank, number) if recorded.loss else None
            rows.row(cells if loss is None and recorded.samples is None else (*cells[:-2], loss, recorded.samples))
            if travels and (recorded.bucket_steps is None or number in recorded.bucket_steps):
                for index, bucket in enumerate(buckets):
                    travels.row((number, index, bucket.size_bytes, start_ns + bucket.ready_ns, start_ns + bucket.done_ns))
            start_ns += total
    if travels:
        entry |= {"bucket_rows": travels.rows, "bucket_crc32": travels.crc32}
    return {**entry, "rows": rows.rows, "crc32": rows.crc32}


def _write_epochs(attempt: Path, epochs: Sequence[Sequence[int | None]]) -> dict[str, Any]:
    with RowWriter(epochs_file(attempt), EPOCH_COLUMNS) as rows:
        for row in epochs:
            rows.row(row)
    return {"epoch_rows": rows.rows, "epoch_crc32": rows.crc32}


def _clock(unix_ns: int, offset_ns: int) -> dict[str, Any]:
    measured = {"offset_ns": offset_ns, "error_ns": 1000}
    return {"clock": {"start": {"unix_ns": unix_ns, **measured}, "end": {"unix_ns": unix_ns + 60_000 * MS, **measured}}}


def _row(step: int, flags: int, start_ns: int | None, total_ns: int, shares: Mapping[str, float]) -> tuple[int | None, ...]:
    cells: dict[str, int | None] = {name: None for name in STEP_COLUMNS}
    cells |= {"step": step, "flags": flags, "start_ns": start_ns, "total_ns": total_ns}
    cells |= {f"{part}_ns": int(shares[part] * total_ns) for part in (*PARTS, "h2d_hidden") if part in shares}
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
        times = [round(step_ns * (1 + 0.004 * (i - (repeat - 1) / 2))) for i in range(repeat)]
        write_runs(study, each, times, steps=20)
    return study
