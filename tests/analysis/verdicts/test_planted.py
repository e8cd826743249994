"""Causes planted in simulated runs are the first thing that is named, what is advised can be run; clean studies stay clean."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.cli import main
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import Point, point_to_dict
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.analysis import simulation
from tests.analysis.simulation import WARMUP_STEPS, Case, simulate, write_attempt
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

Layouts = Sequence[tuple[int, int]]
Size = tuple[Layouts, int, float]
"""Layouts, runs of each point, noise of a rank's computing in per cent."""

TIMED_STEPS = 200
SAMPLES, SECOND = 1_000_000, 10**9
GATES = ("parameters agree", "loss is finite", "ranks stepped equally", "every epoch reshuffled", "no restart inside the window")
PASSED = [{"name": gate, "passed": True, "evidence": "simulated"} for gate in GATES]
MARCONI100 = load_profile("marconi100")
NODE_TYPES = {"v100": {"physical_cores": 32, "smt": 4, "gpus": 4}}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs of a study by its points; without changes they are sound."""

    case: Callable[[Point], Case] = lambda each: Case()
    launch: Callable[[Point, int], Mapping[str, Any]] = lambda each, run: {}
    end: Callable[[Point, int], Mapping[str, Any]] = lambda each, run: {}
    """What launch.json and end.json of a run have besides."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the points."""
    of_layout: Callable[[int, int], Mapping[str, Any]] = lambda nodes, gpus: {}
    hold: str = "batch_per_gpu"


def study_of(folder: Path, plan: Plan, size: Size, seed: int) -> tuple[list[Point], Findings]:
    """Its points, and what is found."""
    layouts, runs, noise = size
    given = {"warmup_steps": WARMUP_STEPS, "steps": TIMED_STEPS, "node_type": None, **plan.changes}
    points = [point(*layout, **{**given, **plan.of_layout(*layout)}) for layout in layouts]
    study = write_study(folder, points, repeat=runs, hold=plan.hold)
    for each in points:
        case = plan.case(each)
        case = replace(case, noise_percent=noise, run_percent=noise / 4, hook=each.measure.comm == "on")
        events = simulate(case, runs, each.ranks, WARMUP_STEPS + TIMED_STEPS, seed + 7 * each.ranks)
        for run in range(runs):
            launch = {**launched(each, run), **plan.launch(each, run)}
            end = {"global_batch": each.global_batch, "gates": PASSED, **plan.end(each, run)}
            write_attempt(study.attempt_dir(each.label, run + 1, launch["job"], 0), events, run, launch, end)
    return points, find(load_study(study))


def launched(each: Point, run: int) -> dict[str, Any]:
    """launch.json."""
    return {
        **{"schema": 1, "point": each.id, "run": run + 1, "job": str(1000 + run), "restart": 0, "backend": "slurm"},
        **{"hosts": [f"node{node:03d}" for node in range(each.layout.nodes)], "env_id": "one", "versions": {"torch": "2.7.1"}},
        **{"ranks": each.ranks, "ranks_per_node": each.layout.gpus_per_node, "data": {"samples": SAMPLES}},
        **{"gpus": ["V100"] if each.device == "cuda" else [], "started_unix_ns": simulation.START_UNIX_NS},
        **{"cpus_of_ranks": [32] * each.ranks, "profile": {"node_types": NODE_TYPES, "default_node_type": "v100"}},
    }


def wide(each: Point) -> bool:
    """Whether it is on several nodes, where a study has any: what is planted there is not on its baselines."""
    return each.layout.nodes > 1


def on_last_node(each: Point, rank: int) -> bool:
    return wide(each) and rank >= each.ranks - each.layout.gpus_per_node


def is_rank(each: Point, rank: int, number: int) -> bool:
    """Of several ranks that one; -1 is the last."""
    return each.ranks > 1 and rank == number % each.ranks


def telemetry(each: Point, mhz: int = 1380, **changes: Any) -> dict[str, Any]:
    """Of nodes on which nobody else is, and whose GPUs are as they should be."""
    gpu = {"gpu": 0, "readings": 20, "sm_mhz_median": mhz, "power_w_mean": 250.0, "throttle": {}}
    shares = {"cpu_busy_share": 0.2, "cpu_job_share": 0.19, "cpu_foreign_share": 0.01}
    hosts = [f"node{node:03d}" for node in range(each.layout.nodes)]
    return {"telemetry": {"nodes": [{"host": host, "readings": 20, "gpus": [gpu], **shares, **changes} for host in hosts]}}


def throttled(each: Point, run: int) -> dict[str, Any]:
    hot = f"GPU 1 of node{each.layout.nodes - 1:03d}: hw_thermal_slowdown in 40% of the readings"
    return {
        **telemetry(each),
        "gates": [*PASSED, {"name": "GPU clocks held", "passed": not (wide(each) and run), "evidence": hot}],
    }


def busy(each: Point, run: int) -> dict[str, Any]:
    share = 0.06 * each.ranks_per_node
    return telemetry(each, cpu_busy_share=share, cpu_job_share=share, cpu_foreign_share=0.0)


def detected(each: Point, run: int) -> dict[str, Any]:
    protocol = {"warmup": "fixed", "warmup_steps": WARMUP_STEPS, "steady_from_step": WARMUP_STEPS, "stopped_by": "steps"}
    return {"protocol": {**protocol, "warmup_detected_steps": WARMUP_STEPS + 40}}


ON: dict[str, Any] = {"comm": "on"}
WARM = Case(warm_ms=80.0, warm_steps=WARMUP_STEPS + 40)
FEW_CORES = {"loader_workers_per_rank": 8, "physical_cores_per_rank": 2}

STRAGGLER = ("straggler", "waiting for one slow rank or node")
WARMUP = ("warm-up inside the window", "warm-up among the timed steps")
COMMUNICATION = ("communication-bound", "exchanging gradients")

CAUSES: Mapping[str, tuple[tuple[str, str], Plan]] = {
    "slow rank": (STRAGGLER, Plan(case=lambda each: Case(slower=lambda rank: 1 + 0.2 * is_rank(each, rank, -1)))),
    "slow node": (STRAGGLER, Plan(case=lambda each: Case(slower=lambda rank: 1 + 0.2 * on_last_node(each, rank)))),
    "slow loader on one rank": (
        STRAGGLER,
        Plan(case=lambda each: Case(data_ms=lambda rank: 30.0 if is_rank(each, rank, 1) else 0.5)),
    ),
    "slow link of one node": (
        ("slow link", "waiting for gradients over one slow link"),
        Plan(case=lambda each: Case(link_ms=lambda rank: 25.0 * on_last_node(each, rank)), changes=ON),
    ),
    "thermal throttling": (
        ("clock throttling", ""),
        Plan(case=lambda each: Case(slower=lambda rank: 1 + 0.25 * on_last_node(each, rank)), end=throttled),
    ),
    "shared node": (
        ("shared node", "other jobs on the nodes"),
        Plan(
            case=lambda each: Case(slower=lambda rank: 1 + 0.2 * wide(each)),
            end=lambda each, run: telemetry(each, cpu_foreign_share=0.3 if wide(each) else 0.01),
        ),
    ),
    "warm-up detected": (WARMUP, Plan(case=lambda each: WARM, end=detected)),
    "warm-up not detected": (WARMUP, Plan(case=lambda each: WARM, changes={"gc": "frozen"})),
    "too few cores": (
        ("CPU starvation", "too few processor cores"),
        Plan(
            case=lambda each: Case(data_ms=lambda rank: 60.0 if each.ranks > 1 else 1.0),
            launch=lambda each, run: {"cpus_of_ranks": [8 if each.ranks > 1 else 128] * each.ranks},
            end=busy,
            changes=FEW_CORES,
        ),
    ),
    "small batch": (COMMUNICATION, Plan(case=lambda each: Case(compute_ms=10.0), changes={"batch_per_gpu": 4, **ON})),
    "slower computation": (
        ("slower computation", "computation that is slower with more ranks"),
        Plan(
            case=lambda each: Case(slower=lambda rank: 1.0 + 0.08 * (each.layout.gpus_per_node > 1) + 0.08 * wide(each)),
            end=lambda each, run: telemetry(each, mhz=1380 if each.ranks == 1 else 1250),
        ),
    ),
    "superlinear baseline": (
        ("suspect baseline", "a baseline that is slower than larger points"),
        Plan(case=lambda each: Case(slower=lambda rank: 1 + 0.25 * (each.ranks == 1))),
    ),
    "mixed GPUs": (
        ("mixed hardware", "GPUs of several types"),
        Plan(launch=lambda each, run: {"gpus": ["A40" if wide(each) else "V100"]}),
    ),
    "two versions of torch": (
        ("mixed software", "several versions of software"),
        Plan(launch=lambda each, run: {"env_id": "two", "versions": {"torch": "2.6.0"}} if wide(each) else {}),
    ),
    "clocks that step": (
        ("the clock of rank", ""),
        Plan(case=lambda each: Case(clock_step_ms=30.0 * (each.ranks > 1)), changes=ON),
    ),
    "exposed communication": (COMMUNICATION, Plan(case=lambda each: Case(transfer_ms=60.0), changes=ON)),
}
"""Cause -> the verdict or note that must come first, what the sentence says, and runs that have it."""

SIZES: Sequence[Size] = (([(1, 1), (1, 4), (2, 4)], 3, 1.0), ([(1, 1), (1, 2), (4, 2)], 6, 2.0))


def first_named(found: Findings) -> str:
    return found.verdicts[0].name if found.verdicts else f"note: {found.notes[0]}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named_first(tmp_path: Path, cause: str, size: Size) -> None:
    """Before all other verdicts and in the sentence; what all of them advise can be run as it is printed."""
    (first, headline), plan = CAUSES[cause]
    points, found = study_of(tmp_path / "s", plan, size, seed=len(cause))
    assert first in first_named(found), [(each.name, each.evidence) for each in found.verdicts]
    assert headline in " ".join(found.sentences)
    texts = [*(each.advice for each in found.verdicts), *found.notes]
    for text in texts:
        can_be_run(text, points[-1], tmp_path)
    settings = {tuple(setting.split("=", 1)) for setting in re.findall(r"--set '?([\w.]+=[^`' ]+)", " ".join(texts))}
    assert len({key for key, _ in settings}) == len(settings), "two values of one key"


def can_be_run(text: str, each: Point, folder: Path) -> None:
    """Settings go through the sweep's parser with the point, commands through their own."""
    for setting in re.findall(r"`(--set [^`]+)`", text):
        sweep, words = folder / "sweep.yaml", [word for word in shlex.split(setting) if word != "--set"]
        sweep.write_text(json.dumps(document(each)))
        assert expand(read_sweep(sweep, words), MARCONI100)
    for command in re.findall(r"`(hpcddp [^`]+)`", text):
        (folder / "SWEEP.yaml").write_text(json.dumps(document(each)))
        words = [str(folder / word) if word == "SWEEP.yaml" else word for word in shlex.split(command)[1:]]
        parse(main, words)


def parse(command: click.Command, words: Sequence[str]) -> None:
    with command.make_context(command.name or "", list(words)) as context:
        if isinstance(command, click.Group):
            name, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert inner is not None, name
            parse(inner, rest)


def document(each: Point) -> dict[str, Any]:
    """A sweep of that one point."""
    found: dict[str, Any] = dict(point_to_dict(each))
    parts = {name: found[name] for name in ("workload", "layout", "measure", "device", "work")}
    return {"schema": 1, "cluster": "marconi100", **parts, "layout": {**parts["layout"], "node_type": None}}


LOADER = {"workers": 2, "samples_per_s": 1e6, "samples": 3200, "batches": 100, "read_s": 1.0, "compute_s": 1.0}
LOADING = {"loader": LOADER}

CLEAN_LAYOUTS: Sequence[Layouts] = (
    [(1, 1)],
    [(1, 1), (1, 2)],
    [(1, 1), (1, 4), (2, 4)],
    [(1, 1), (1, 2), (4, 2)],
    [(1, 1), (1, 4), (8, 4)],
)
LARGE: Layouts = [(1, 1), (1, 4), (64, 4)]


@pytest.mark.parametrize("seed", range(30))
def test_clean_studies_have_no_verdict(tmp_path: Path, seed: int) -> None:
    """Of 1 to 256 ranks, on GPUs and CPUs, weak and strong scaling, noise of 0 to 5 %, jitter, with the hook or without."""
    noise, layouts, strong = float(seed % 6), CLEAN_LAYOUTS[seed % 5] if seed != 4 else LARGE, seed % 4 == 3
    jitter = (0.0, 1.0, 3.0)[seed % 3] if layouts is not LARGE else 0.5

    def case(each: Point) -> Case:
        share = each.workload.batch_per_gpu / 1024 if strong else 1.0
        phi = (0.0, 0.5, 0.9)[seed % 3]
        return Case(jitter_percent=jitter * share, phi=phi, compute_ms=890.0 * share, transfer_ms=60.0 * share)

    plan = Plan(
        case=case,
        changes={**({"device": "cpu"} if seed % 7 == 0 else {}), **(ON if seed % 2 else {})},
        of_layout=lambda nodes, gpus: {"batch_per_gpu": 1024 // nodes // gpus} if strong else {},
        hold="global_batch" if strong else "batch_per_gpu",
        end=lambda each, run: {**telemetry(each), **(LOADING if seed % 3 == 0 else {})},
    )
    _, found = study_of(tmp_path / "s", plan, (layouts, 1 + seed % 4, noise), seed=1000 * seed)
    assert {each.name: each.evidence for each in found.verdicts if each.name != "too few steps"} == {}


@pytest.mark.parametrize("seed", range(3))
def test_clean_trainings_have_no_verdict(tmp_path: Path, seed: int) -> None:
    points, draw = [point(1, gpus, work="train", epochs=4) for gpus in (1, 2)], Random(seed)
    study = write_study(tmp_path / "s", points, repeat=3)
    for each, run in itertools.product(points, (1, 2, 3)):
        times = [round(100 * MS * (1 + draw.gauss(0, 0.02))) for _ in range(120)]
        rows = [
            [epoch, 30 * epoch, 30 * epoch * each.global_batch, 3 * epoch * SECOND, 4 * epoch * SECOND, 10**10, each.global_batch]
            for epoch in (1, 2, 3, 4)
        ]
        epochs = [[*row, SECOND, 900 + row[0], 1000, SECOND] for row in rows]
        shares = {"data_wait": 0.02, "forward": 0.3, "backward": 0.55, "optimizer": 0.05, "comm_exposed": 0.03 * (each.ranks > 1)}
        recorded = Recorded(
            step_ns=lambda rank, step, times=times: times[step],  # type: ignore[misc]
            steps=119,
            job=str(run),
            epochs=epochs,
            pauses=(30, 60, 90),
            shares=shares,
            end={"evaluation": {"samples": 1000, "correct": 904, "loss": 0.1}},
        )
        write_run(study, each, recorded, run)
    found = find(load_study(study))
    assert [run.state for run in found.records.runs] == ["counts"] * 6, [run.reason for run in found.records.runs]
    assert {each.name: each.evidence for each in found.verdicts} == {}
