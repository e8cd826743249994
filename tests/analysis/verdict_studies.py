"""Studies by a stated model: sound ones, and the same with one thing wrong.

A step lasts base x (1 + run effect) x (1 + AR(1) noise), the same on all ranks but for a few ns. Its parts are
fixed shares. On more than one rank it is longer by what is exposed of the exchange of gradients. Gates are the worker's own,
telemetry and protocol are as it writes them, the end of the warm-up is detected by the worker's own function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hpcddp.core.attempt_records import DamagedFiles, GateResult
from hpcddp.core.launch_record import RankBinding
from hpcddp.core.point import Point, comm_point, point_to_dict
from hpcddp.core.preflight import PreflightRecord, slow_readings
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.transport_record import TransportRecord
from hpcddp.worker import gates
from hpcddp.worker.rank_result import NodeShare
from hpcddp.worker.training.stop_rule import warmup_steps
from tests.analysis.study.test_comm_bench import operation, write_benchmark
from tests.analysis.synthetic import (
    MS,
    Bucket,
    Recorded,
    point,
    predicted,
    write_prediction,
    write_run,
    write_runs,
    write_study,
)
from tests.fake_node import clean, slowed

Layout = tuple[int, int]

SETS: Sequence[Sequence[Layout]] = (
    [(1, 1), (1, 2), (2, 2)],
    [(1, 1), (1, 2), (1, 4)],
    [(1, 1), (1, 4), (2, 4)],
    [(1, 1), (2, 1)],
)

PROFILE = {"node_types": {"ac922": {"physical_cores": 32, "smt": 4, "gpus": 4}}, "default_node_type": "ac922"}
CPUS = 128


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a study is made of; without changes it is sound."""

    seed: int
    layouts: Sequence[Layout]
    repeat: int = 3
    steps: int = 150
    noise: float = 0.01
    """Standard deviation of steps within a run."""
    phi: float = 0.3
    """Autocorrelation of that."""
    run_effect: float = 0.003
    """Standard deviation between runs."""
    base_ms: float = 80.0
    data_wait: float = 0.02
    """Share of the step."""
    exposed: float = 0.04
    """Share of the step on more than one rank, half of it transfer at least."""
    peer_offset: float = 0.002
    """How far apart ranks are ready, as a share of the step."""
    late_rank: tuple[int, float] | None = None
    """A rank that is later than the others by this share of the step."""
    more: Callable[[Point, int, int], float] | None = None
    """What a rank needs longer in a step than others may, as a share of the step; those wait for it."""
    more_in: str = "backward"
    """The part that is longer."""
    jitter: float = 0.0
    """Standard deviation of ranks' steps, each its own, if there is nothing in `more`."""
    buckets: int = 4
    bucket_bytes: int = 25_000_000
    hook: bool = True
    cpu: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the points: see synthetic.point."""
    named: bool = False
    """Whether preflight had found the last node slow."""
    cpus_per_rank: int = 32
    bindings: Sequence[RankBinding] = ()
    """Of the first ranks of every run; none are recorded where there are more."""
    job_share: float = 0.05
    """Of the node's CPU time, by each rank with its loaders."""
    foreign: float = 0.005
    damaged: DamagedFiles | None = None
    """Of every run's training pictures."""
    gpu: Callable[[Point, int], str] = lambda point, run: "V100"
    of_run: Callable[[Point, int], float] = lambda point, run: 1.0
    """Factor on all steps."""
    of_step: Callable[[Point, int], float] = lambda point, step: 1.0
    """Factor on a step; what it adds is exposed communication if `grows` is."""
    grows: str | None = None
    gates: Sequence[GateResult] = ()
    fitted: tuple[float, float] | None = None
    """Latency in s and bus bandwidth in bytes/s of a benchmark of the collectives."""
    transport: TransportRecord | None = None
    """Of every run on several nodes."""
    fabric: Mapping[str, Any] = field(default_factory=dict)
    """Of the profile."""
    by_rows: float = 0.0
    """Of a training of two epochs, their time by the rows of epochs, as a share of that of their steps; 0: another work."""
    predicted: float = 0.0
    """Throughput of the largest size by prediction.json, as a share of what it has without noise; 0: there is no such file."""


STARVED = Model(
    seed=1,
    layouts=[(1, 1), (1, 2), (1, 4)],
    changes={"loader_workers_per_rank": 16, "physical_cores_per_rank": 2},
    cpus_per_rank=8,
    job_share=0.06,
    data_wait=0.6,
    hook=False,
)
"""Threads taken for cores."""


def measured(folder: Path, steps_ms: Mapping[Point, Sequence[float]], **recorded: Any) -> Study:
    """A study of points with a run for each of their steps."""
    study = write_study(folder, list(steps_ms), max(map(len, steps_ms.values())))
    for each, times in steps_ms.items():
        write_runs(study, each, [round(ms * MS) for ms in times], **recorded)
    return study


def sound(seed: int) -> Model:
    """Any layouts, runs and steps, noise from 0.5 to 3 %, a run effect of a quarter of that, CUDA or CPU, hook or not."""
    draw = Random(seed)
    noise = draw.uniform(0.005, 0.03)
    return Model(
        seed=seed,
        layouts=draw.choice(SETS),
        repeat=draw.choice([1, 1, 2, 3, 6]),
        steps=draw.choice([100, 150]) if noise < 0.015 else 200,
        noise=noise,
        phi=draw.choice([0.0, 0.3, 0.5]),
        run_effect=noise / 4,
        base_ms=draw.choice([5.0, 80.0, 400.0]),
        data_wait=draw.uniform(0, 0.05),
        exposed=draw.uniform(0, 0.08),
        jitter=draw.uniform(0, 0.015),
        hook=draw.random() < 0.5,
        cpu=draw.random() < 0.3,
        fitted=(30e-6, 10e9) if draw.random() < 0.3 else None,
    )


def write(model: Model, folder: Path) -> Study:
    """The study's files."""
    device: dict[str, Any] = {"device": "cpu"} if model.cpu else {}
    points = [point(nodes, gpus, **{**device, **model.changes}) for nodes, gpus in model.layouts]
    hooked = [_hooked(points[-1])] if model.hook and points[-1].ranks > 1 else []
    study = write_study(folder, [*points, *hooked], model.repeat)
    draw = Random(model.seed)
    for each in (*points, *hooked):
        for run in range(1, model.repeat + 1):
            attempt = write_run(study, each, _recorded(model, each, run, draw), run)
            if model.transport and each.layout.nodes > 1:
                write_json(attempt / "transport.json", encode(model.transport))
    if model.fitted and points[-1].ranks > 1:
        bench, gpus = comm_point(points[-1]), [] if model.cpu else [model.gpu(points[-1], 1)]
        write_json(study.point_file(bench.label), {"schema": 1, "id": bench.id, "point": point_to_dict(bench)})
        write_benchmark(study, bench, {"all_reduce": operation("all_reduce", bench.ranks, *model.fitted)}, *gpus)
    if model.predicted:
        rate = model.predicted * points[-1].global_batch / step_s(model, points[-1])
        write_prediction(study, predicted(points[-1], rate, anchor=points[0].label))
    if model.named:
        ranks = slowed(clean(model.seed, nodes=4), "memory_bytes_per_s", 0.7, [f"r{points[-1].layout.nodes - 1:03d}"])
        found = PreflightRecord(job="9", unix_ns=1, took_s=5.0, device="cuda", ranks=tuple(ranks), slow=slow_readings(ranks))
        write_json(study.preflight_file("9", 0), encode(found))
    return study


def _hooked(plain: Point) -> Point:
    return dataclasses.replace(plain, measure=dataclasses.replace(plain.measure, comm="on"))


def step_s(model: Model, each: Point) -> float:
    """Without noise."""
    return model.base_ms / 1e3 / (1 - (model.exposed if each.ranks > 1 else 0.0))


def _recorded(model: Model, each: Point, run: int, draw: Random) -> Recorded:
    more = _more(model, each, draw)
    times = [round(time_ns * (1 + max(longer))) for time_ns, longer in zip(_times_ns(model, each, run, draw), more, strict=True)]
    detected = warmup_steps([10 * times[0], *times[1:]])
    on = each.measure.comm == "on"
    return Recorded(
        step_ns=lambda rank, step: times[step] + 7 * rank,
        shares=_shares(model, each),
        shares_of_rank={rank: _with_more(model, _shares(model, each, rank), more, rank) for rank in range(each.ranks)},
        steps=model.steps,
        epochs=_epochs(model, each, [10 * times[0], *times[1:]]),
        buckets=_buckets(model, each, draw) if on else (),
        gpu=None if model.cpu else model.gpu(each, run),
        job=str(100 + run),
        gates=encode([*_passed(each), *model.gates] if run == 1 else _passed(each)),
        protocol={"steady_from_step": 1, "warmup_steps": 1, "warmup_detected_steps": detected, "stopped_by": "steps"},
        launch={
            "profile": {**PROFILE, "fabric": model.fabric},
            "cpus_of_ranks": [model.cpus_per_rank] * each.ranks,
            "bindings": encode(model.bindings[: each.ranks]),
        },
        end={"telemetry": _telemetry(model, each), **({"damaged": {"train": encode(model.damaged)}} if model.damaged else {})},
    )


def _epochs(model: Model, each: Point, times: Sequence[int]) -> list[list[int | None]]:
    """Their rows: the first half of the steps, and the rest."""
    ends = [len(times) // 2, len(times)] if model.by_rows else []
    batch, passed_ns = each.global_batch, [round(model.by_rows * sum(times[:end])) for end in ends]
    unknown = [None] * 4
    return [
        [number, end, end * batch, ns, ns + number, 10**10, batch, *unknown]
        for number, (end, ns) in enumerate(zip(ends, passed_ns, strict=True), start=1)
    ]


def _times_ns(model: Model, each: Point, run: int, draw: Random) -> list[int]:
    level = step_s(model, each) * 1e9 * (1 + draw.gauss(0, model.run_effect)) * model.of_run(each, run)
    times, deviation = [], 0.0
    for step in range(model.steps + 1):
        deviation = model.phi * deviation + draw.gauss(0, model.noise * (1 - model.phi**2) ** 0.5)
        times.append(round(level * (1 + deviation) * model.of_step(each, step)))
    return times


def _more(model: Model, each: Point, draw: Random) -> list[list[float]]:
    """Of each step, the warm-up first, by rank."""
    if each.ranks == 1:
        return [[0.0]] * (model.steps + 1)
    given = model.more or (lambda point, rank, step: abs(draw.gauss(0, model.jitter)))
    return [[given(each, rank, step) for rank in range(each.ranks)] for step in range(model.steps + 1)]


def _with_more(
    model: Model, shares: Callable[[int], Mapping[str, float]], more: Sequence[Sequence[float]], rank: int
) -> Callable[[int], Mapping[str, float]]:
    """A step is longer by what its slowest rank needs; the others wait for that in the exchange."""

    def of_step(step: int) -> Mapping[str, float]:
        longest, mine, parts = max(more[step]), more[step][rank], dict(shares(step))
        parts["comm_exposed"] += longest - mine
        parts[model.more_in] += mine
        return {name: share / (1 + longest) for name, share in parts.items()}

    return of_step


def _shares(model: Model, each: Point, rank: int | None = None) -> Callable[[int], Mapping[str, float]]:
    exposed = model.exposed if each.ranks > 1 else 0.0
    parts = {"data_wait": model.data_wait, "comm_exposed": exposed, "optimizer": 0.05}
    rest = 1 - sum(parts.values())
    parts |= {"forward": rest / 3, "backward": rest * 2 / 3}
    if rank is not None and model.late_rank and model.late_rank[0] == rank:
        parts |= {name: parts[name] + sign * model.late_rank[1] for name, sign in (("backward", 1), ("comm_exposed", -1))}

    def of_step(step: int) -> Mapping[str, float]:
        factor = model.of_step(each, step)
        if factor == 1 or model.grows is None:
            return parts
        found = {name: share / factor for name, share in parts.items()}
        return found | {model.grows: found[model.grows] + 1 - 1 / factor}

    return of_step


def _buckets(model: Model, each: Point, draw: Random) -> list[Callable[[int], Bucket]]:
    """The last bucket ends with the exposed communication; the others lie evenly before it, behind the computation."""
    step_ns = step_s(model, each) * 1e9
    end_ns, begin_ns = step_ns * 0.95, step_ns * (0.95 - model.exposed)
    late = [draw.uniform(0, model.peer_offset) * step_ns for _ in range(each.ranks)]
    if model.late_rank:
        late[model.late_rank[0]] += model.late_rank[1] * step_ns
    first_ns = begin_ns - step_ns * 0.25

    def bucket(index: int) -> Callable[[int], Bucket]:
        share_ns = (end_ns - first_ns) / model.buckets
        ready_ns, done_ns = first_ns + index * share_ns, first_ns + (index + 1) * share_ns
        ready_ns = min(ready_ns, begin_ns)
        return lambda rank: Bucket(size_bytes=model.bucket_bytes, ready_ns=int(ready_ns + late[rank]), done_ns=int(done_ns))

    return [bucket(index) for index in range(model.buckets)]


def _passed(each: Point) -> list[GateResult]:
    return [
        gates.parameters_agree([{"at the end": "0123456789ab"}] * each.ranks),
        gates.ranks_stepped_equally([6] * each.ranks, 6),
        gates.buffers_agree(["0123456789ab"] * each.ranks),
        gates.nodes_are_ours([NodeShare(host="r000", cpus=CPUS, of=CPUS)], [0.001], True),
    ]


def _telemetry(model: Model, each: Point) -> dict[str, Any]:
    """What telemetry.summary says; of GPUs nothing that no verdict reads."""
    busy = model.job_share * each.ranks_per_node
    share = {"cpu_job_share": busy, "cpu_foreign_share": model.foreign}
    nodes = [
        {"host": f"r{node:03d}", "cpu_busy_share": busy + model.foreign, **share, "gpus": []} for node in range(each.layout.nodes)
    ]
    return {"hz": 1.0, "energy_j_per_1000_samples": None, "nodes": nodes}
