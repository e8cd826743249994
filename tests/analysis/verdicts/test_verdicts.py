"""Each verdict on studies made to show it, and none on sound ones; how they are printed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.wording import WIDE
from hpcddp.analysis.verdicts.context import Advice, Set, Verdict, listed, phrase, run_numbers, where
from hpcddp.analysis.verdicts.findings import find
from hpcddp.analysis.verdicts.verdicts import ALL, decided, verdict_lines
from hpcddp.core.attempt_records import DamagedFiles, GateResult, GpuTelemetry
from hpcddp.core.launch_record import RankBinding
from hpcddp.core.point import OwnScript, Point
from hpcddp.core.transport_record import NodeAdapters, TransportRecord
from hpcddp.sweep.file import read_sweep
from hpcddp.worker import gates
from hpcddp.worker.rank_result import EvaluatedShare, NodeShare
from tests.analysis.synthetic import point
from tests.analysis.verdict_studies import STARVED, Layout, Model, measured, sound, write

pytestmark = pytest.mark.usefixtures("undrawn")

SWEEPS = Path(__file__).parents[3] / "jobs"

SEEDS = 2
SOUND = 50

BY_EVENTS = {"mixed software", "suspect baseline", "slower computation", "slow link"}
"""Planted in test_planted.py."""

NamesAndAdvice = list[tuple[str, str]]
"""Verdicts found in a study: name, advice."""

TWO_NODES: list[Layout] = [(1, 1), (2, 1)]
IN_NODE: list[Layout] = [(1, 1), (1, 4)]
BASE = Model(seed=0, layouts=TWO_NODES, repeat=2, steps=120, hook=False)


def fault(*expected: str, **changes: Any) -> tuple[Model, set[str]]:
    return dataclasses.replace(BASE, **changes), set(expected)


def several_nodes(each: Point) -> bool:
    return each.layout.nodes > 1


def throttled() -> GateResult:
    hot = {"hw_thermal_slowdown": 0.4}
    gpu = GpuTelemetry(gpu=1, readings=9, sm_mhz_begin=1380, sm_mhz_end=1005, sm_mhz_median=1200, throttle=hot)
    return gates.gpu_clocks_held([("r001", gpu)])


def left_out() -> GateResult:
    shares = [
        EvaluatedShare(samples=samples, correct=0, loss_sum=0.0, first=first, end=first + 5000, mismatch=None)
        for first, samples in ((0, 5000), (5000, 4936))
    ]
    return gates.evaluation_is_exact(shares, 10_000)


RDMA = {"name": "InfiniBand HDR200", "protocol": "rdma", "adapters_per_node": 4}
"""Of a profile."""


def tcp() -> dict[str, Any]:
    """Two nodes whose NCCL found no adapter."""
    node = NodeAdapters(found=("eth0",), used=("eth0",))
    record = TransportRecord(schema=1, library="NCCL", networks=("Socket",), nodes={"r000": node, "r001": node})
    return {"transport": record, "fabric": RDMA}


def adapters(used: int, gdr_off: tuple[str, ...] = ()) -> dict[str, Any]:
    """Two full nodes of four adapters, so many of them in use."""
    names = tuple(f"mlx5_{number}" for number in range(4))
    node = NodeAdapters(found=names, used=names[:used])
    record = TransportRecord(schema=1, library="NCCL", networks=("IB",), nodes={"r000": node, "r001": node}, gdr_off=gdr_off)
    record = dataclasses.replace(record, network_connections=8, gdr_connections=0 if gdr_off else 8)
    return {"transport": record, "fabric": RDMA, "layouts": [(1, 1), (1, 4), (2, 4)]}


FAULTS: Mapping[str, tuple[Model, set[str]]] = {
    "ranks apart": fault("unsynchronised ranks", gates=[gates.parameters_agree([{"at the end": "0"}, {"at the end": "1"}])]),
    "a rank ends early": fault("unsynchronised ranks", gates=[gates.ranks_stepped_equally([6, 4], 6)]),
    "samples left out": fault("wrong evaluation", gates=[left_out()]),
    "too hot": fault("clock throttling", gates=[throttled()]),
    "others compute": fault("shared node", foreign=0.3),
    "part of a node": fault("shared node", gates=[gates.nodes_are_ours([NodeShare(host="r000", cpus=32, of=128)], [0.4], True)]),
    "TCP on InfiniBand": fault("TCP instead of RDMA", **tcp()),
    "one adapter of four": fault("idle adapters", **adapters(used=1)),
    "adapters that GPUs cannot use": fault("no GPUDirect RDMA", **adapters(used=4, gdr_off=("mlx5_0",))),
    "another GPU on two nodes": fault(
        "mixed hardware", layouts=[(1, 1), (1, 2), (2, 2)], gpu=lambda each, run: "A40" if several_nodes(each) else "V100"
    ),
    "two GPU types in a job": fault("mixed hardware", gpu=lambda each, run: "A40 + V100"),
    "slow start": fault("warm-up inside the window", of_step=lambda each, step: 1.6 if step < 30 else 1.0),
    "slow first half": fault("warm-up inside the window", of_step=lambda each, step: 1.06 if step < 60 else 1.0),
    "a dozen steps": fault("too few steps", steps=12),
    "steps all over": fault("too few steps", steps=40, noise=0.2, phi=0.0),
    "baseline all over": fault(
        "noisy baseline",
        repeat=6,
        run_effect=0.002,
        of_run=lambda each, run: 1 + 0.03 * (run % 3 - 1) if each.ranks == 1 else 1.0,
    ),
    "burst, then slow": fault(
        "burst network",
        "communication-bound",
        of_step=lambda each, step: 1 + 0.5 * (several_nodes(each) and step > 40),
        grows="comm_exposed",
    ),
    "bursts in turn": fault(
        "burst network",
        "communication-bound",
        of_step=lambda each, step: 1 + 0.4 * (several_nodes(each) and step % 7 < 3),
        grows="comm_exposed",
    ),
    "every tenth step longer": fault(
        "stalls", of_step=lambda each, step: 1 + 0.4 * (several_nodes(each) and step % 10 == 7), grows="forward"
    ),
    "threads taken for cores": fault(
        "CPU starvation",
        "input-bound",
        changes={"loader_workers_per_rank": 16, "physical_cores_per_rank": 2},
        cpus_per_rank=8,
        job_share=0.06,
        data_wait=0.6,
    ),
    "one picture in 500 damaged": fault(
        "damaged data", damaged=DamagedFiles(pictures=20, read=10_000, first=("n01440764/n01440764_18.JPEG (it is no picture)",))
    ),
    "more ranks than cores": fault("CPU starvation", cpu=True, cpus_per_rank=2, job_share=0.0155),
    "every rank on the first core": fault(
        "shared cores", layouts=IN_NODE, bindings=[RankBinding(cpus="0-3", cores="0", node_cores=32)] * 4
    ),
    "ranks far from their GPUs": fault(
        "far socket", layouts=IN_NODE, bindings=[RankBinding(cpus="0-127", sockets=(0,), gpu="0004:04:00.0", gpu_socket=8)] * 4
    ),
    "a node that preflight named": fault("slow node", named=True),
    "slow data": fault("input-bound", data_wait=0.4),
    "a little slow data": fault("input-bound", data_wait=0.13),
    "a late rank": fault("straggler", hook=True, layouts=[(1, 1), (1, 4)], late_rank=(2, 0.08), exposed=0.12),
    "a slow rank, no hook": fault("straggler", layouts=IN_NODE, more=lambda each, rank, step: 0.1 * (rank == 2)),
    "a slow node, no hook": fault("straggler", layouts=[(1, 1), (1, 4), (2, 4)], more=lambda each, rank, step: 0.1 * (rank >= 4)),
    "a slow rank behind half a step": fault("straggler", layouts=IN_NODE, more=lambda each, rank, step: 0.8 * (rank == 1)),
    "one slow loader": fault("straggler", layouts=IN_NODE, more=lambda each, rank, step: 0.9 * (rank == 3), more_in="data_wait"),
    "ranks in turn": fault("uneven ranks", layouts=IN_NODE, more=lambda each, rank, step: 0.5 * (step % 4 == rank)),
    "many small buckets": fault("latency-bound", hook=True, buckets=60, bucket_bytes=40_000, exposed=0.3, fitted=(900e-6, 1e10)),
    "small buckets, no benchmark": fault("latency-bound", hook=True, buckets=60, bucket_bytes=40_000, exposed=0.3),
    "slow network": fault("communication-bound", hook=True, exposed=0.4, fitted=(30e-6, 3e9)),
    "slow network, no hook": fault("communication-bound", exposed=0.4),
    "no single GPU": fault("baseline missing", layouts=[(1, 2), (2, 2)]),
    "no full node": fault("baseline missing", layouts=[(1, 1), (2, 2)]),
    "ranks apart in every run": fault(
        "no run counts",
        "unsynchronised ranks",
        repeat=1,
        gates=[gates.parameters_agree([{"at the end": "0"}, {"at the end": "1"}])],
    ),
    "slower than predicted": fault("out of line with prediction", predicted=1.25),
    "epochs that last longer than their steps": fault(
        "contradicting figures", by_rows=1.1, changes={"work": "train", "epochs": 2}
    ),
}
"""What is wrong -> a study with it, and the verdicts that must be found: no more, no fewer."""


def found_in(model: Model, folder: Path) -> NamesAndAdvice:
    """The verdicts of a study so made."""
    return [(verdict.name, verdict.advice) for verdict in find(load_study(write(model, folder / "s"))).verdicts]


def of_fault(planted: tuple[int, int], folder: Path) -> NamesAndAdvice:
    """Of the n-th fault with noise by that seed. Another process calls this: a model's functions do not travel."""
    number, seed = planted
    model, _ = list(FAULTS.values())[number]
    return found_in(as_sound(model, 1000 * number + seed), folder / f"{number}-{seed}")


def of_seed(seed: int, folder: Path) -> NamesAndAdvice:
    """Of a sound study."""
    return found_in(sound(seed), folder / f"sound-{seed}")


def as_sound(model: Model, seed: int) -> Model:
    """With the noise of a sound study, where the fault leaves it alone."""
    noise = Random(seed).uniform(0.005, 0.015)
    return dataclasses.replace(model, seed=seed, noise=max(noise, model.noise if model.noise > 0.05 else 0))


@pytest.mark.dear
@pytest.mark.parametrize(("seeds", "sound_studies"), [(1, 10), pytest.param(SEEDS, SOUND, marks=pytest.mark.soak)])
def test_precision_and_recall(seeds: int, sound_studies: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every verdict is found in every study that has it, in no other and in no sound one; what it advises to set can be set."""
    hits, missed, false, advice = Counter[str](), Counter[str](), Counter[str](), set[str]()
    planted = [(number, seed) for number in range(len(FAULTS)) for seed in range(seeds)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        of_faults = pool.map(of_fault, planted, itertools.repeat(tmp_path), chunksize=4)
        of_sound = dict(
            zip(
                range(sound_studies),
                pool.map(of_seed, range(sound_studies), itertools.repeat(tmp_path), chunksize=5),
                strict=True,
            )
        )
        for (number, _), verdicts in zip(planted, of_faults, strict=True):
            (_, expected), found = list(FAULTS.values())[number], {name for name, _ in verdicts}
            advice |= {each for _, each in verdicts}
            hits.update(expected & found)
            missed.update(expected - found)
            false.update(found - expected)
    alarms = {seed: verdicts for seed, verdicts in of_sound.items() if verdicts}
    right, named = hits.total(), hits.total() + false.total() + sum(map(len, alarms.values()))
    with capsys.disabled():
        of = f"{right} of {right + missed.total()} planted in {seeds * len(FAULTS)} studies"
        print(
            f"\nverdicts: {right} of {named} told are right, {of} told; {len(alarms)} of {sound_studies} sound studies with any"
        )
    for option in re.findall(r"--set ([a-z_.]+=[^` ]+)", " ".join(sorted(advice))):
        read_sweep(SWEEPS / "marconi100-resnet50.yaml", [option])  # refuses what no sweep can have
    assert set(hits) | BY_EVENTS == set(ALL)
    assert (dict(missed), dict(false), alarms) == ({}, {}, {})


def test_what_is_to_be_copied_is_not_broken() -> None:
    command = "`--set layout.physical_cores_per_rank=8 --set workload.loader_workers_per_rank=7`"
    long = Verdict(name="n", where="w", evidence="e " * 99, advice="do it " * 15 + command, numbers={}, runs=(), weight=1)
    lines = verdict_lines([long])
    assert max(map(len, lines)) <= WIDE
    assert any(command in line for line in lines)


def test_of_many_alike_two_are_told() -> None:
    alike = [
        Verdict(name="n", where=f"at {number}", evidence="e", advice="do it", numbers={}, runs=(), weight=1)
        for number in range(5)
    ]
    assert verdict_lines(alike) == [
        "  VERDICT  n at 0: e",
        "  VERDICT  n at 1: e",
        "           and 3 more of this name: see report.json",
        "           do it",
    ]


def test_verdicts_stand_before_the_table_and_in_report_json(tmp_path: Path) -> None:
    write(STARVED, tmp_path / "s")
    (result,) = analyze(tmp_path)
    assert result.text.index("VERDICT  CPU starvation at every point") < result.text.index("checks ")
    rows: list[dict[str, Any]] = json.loads((tmp_path / "s/report/report.json").read_bytes())["verdicts"]
    assert [(verdict["name"], len(verdict["runs"])) for verdict in rows] == [("CPU starvation", 9), ("input-bound", 9)]
    assert rows[0]["numbers"] == {"busy_share": pytest.approx(0.96), "cores": 2.0, "needed": 17}


def test_places_and_runs_in_words(tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2), point(2, 2), point(4, 2)]
    records = load_study(measured(tmp_path / "s", dict.fromkeys(points, (1,) * 6)))
    series = find(records).shown
    rows = [row for _, row in series.iterrows()]
    assert where(rows, series, "") == "at every point"
    assert where(rows[1:], series, "batch/GPU 64") == "at every point from 1x2 on (batch/GPU 64)"
    assert where(rows[:2], series, "") == "at 1x1 and 1x2"
    assert listed(list("abcdefg")) == "a, b, c, d and 3 more"
    assert run_numbers([run for run in records.runs if run.run in (1, 2, 3, 5)]) == "runs r1-r3, r5"
    assert run_numbers(records.runs[:1]) == "run r1"


FOLDER = Path(__file__).parents[3] / "analysis/verdicts"
OWN_SCRIPT = Path(__file__).parents[3] / "jobs/own-script.yaml"
SOURCES = {file.stem: file.read_text() for file in FOLDER.glob("*.py")}

KEYS = sorted(
    {key for text in SOURCES.values() for key in re.findall(r'"((?:workload|layout|measure|slurm)\.(?!optimizer)[\w.]+)"', text)}
)
"""Every key that the sources name."""

VALUES: dict[str, object] = {"measure.stop": "seconds", "measure.warmup": "detect", "measure.comm": "on", "measure.gc": "frozen"}
VALUES |= {"layout.exclusive": True, "layout.launcher": "torchrun", "layout.node_type": "a100", "slurm.exclude": "r001"}
VALUES |= {"slurm.options": ["-x"], "slurm.srun_options": ["-x"]}

STARTED_BY_ITSELF = dataclasses.replace(point(1, 2), script=OwnScript(name="train.py"))
IN_SWEEP = point(1, 2, script="train.py")


def verdict(name: str, todo: Advice, weight: float = 1.0) -> Verdict:
    return Verdict(name=name, where="at 1x2", evidence="", todo=todo, numbers={}, runs=(), weight=weight)


def said(todo: Advice, *points: Point) -> str:
    """The advice of a study with these points."""
    return decided([verdict("stalls", todo)], [], points)[0][0].advice


def test_settings_are_written_in_one_place() -> None:
    """Elsewhere they are data, or they could contradict each other."""
    assert [name for name, text in SOURCES.items() if re.search(r"`--set [^K]|repeat: \d", text) and name != "verdicts"] == []


def test_no_key_has_two_values() -> None:
    """The first decides, and the others refer to it, notes too; what agrees stays."""
    more, fewer = Set({"workload.loader_workers_per_rank": 7}), Set({"workload.loader_workers_per_rank": 1})
    both = Set({"layout.physical_cores_per_rank": 8, "workload.loader_workers_per_rank": 1})
    cores = Set({"layout.physical_cores_per_rank": 4})
    found = [verdict(name, phrase("Use ", each)) for name, each in (("a", more), ("b", both), ("c", cores), ("d", more))]
    verdicts, notes = decided(found, [phrase("Too many. Use ", fewer, "."), "of nothing"], [point(1, 1)])
    assert [each.advice for each in verdicts] == [
        "Use `--set workload.loader_workers_per_rank=7`",
        "Follow the verdict `a` first: `--set workload.loader_workers_per_rank=7`.",
        "Use `--set layout.physical_cores_per_rank=4`",
        "Use `--set workload.loader_workers_per_rank=7`",
    ]
    assert notes == ["Too many. Use the advice of the verdict `a`.", "of nothing"]


def test_what_serves_all_is_advised_to_all() -> None:
    """The most steps that anybody needs, and every host that somebody would leave out."""
    found = [verdict(str(n), phrase(Set({"measure.steps": n, "slurm.exclude": f"r{n}"}))) for n in (300, 1200, 500)]
    verdicts, notes = decided(found, [phrase(Set({"measure.steps": 100}))], [point(1, 1)])
    assert {each.advice for each in verdicts} == {"`--set measure.steps=1200 --set slurm.exclude=r300,r500,r1200`"}
    assert notes == ["`--set measure.steps=1200`"]


def test_values_are_quoted_for_a_shell() -> None:
    assert said(phrase(Set({"slurm.options": ["--hint=x"]})), point(1, 1)) == "`--set 'slurm.options=[\"--hint=x\"]'`"
    texts = {true: said(phrase(Set({"k": true})), point(1, 1)) for true in (True, 2.5, 30.0, "a b")}
    assert list(texts.values()) == ["`--set k=true`", "`--set k=2.5`", "`--set k=30`", "`--set 'k=a b'`"]


@pytest.mark.parametrize("key", KEYS)
def test_what_a_script_decides_is_no_key_of_its_sweep(key: str) -> None:
    for values in ({key: VALUES.get(key, 4)}, {key: VALUES.get(key, 4), "layout.physical_cores_per_rank": 8}):
        text = said(phrase(Set(values)), IN_SWEEP)
        settings = [word for option in re.findall(r"`(--set [^`]+)`", text) for word in shlex.split(option) if "=" in word]
        read_sweep(OWN_SCRIPT, settings)
        assert not any(each.startswith(("workload.", "measure.input")) for each in settings)


@pytest.mark.parametrize("key", KEYS)
def test_what_no_sweep_has_cannot_be_set(key: str) -> None:
    """A script that was started by itself has no `--set`; hpcddp's own loops have it as it is, beside a script's, too."""
    values = phrase(Set({key: VALUES.get(key, 4), "layout.physical_cores_per_rank": 8}))
    assert "--set" not in said(values, STARTED_BY_ITSELF)
    assert said(values, point(1, 1)) == said(values, point(1, 1), IN_SWEEP)


def test_in_its_words() -> None:
    steps = phrase(Set({"measure.steps": 2100}), ", or ", Set({"measure.stop": "interval"}), " to go on until it is known")
    by_itself = "`measure(..., steps=2100)`, or `measure.stop: interval` in a sweep of the script to go on until it is known"
    assert said(steps, STARTED_BY_ITSELF) == by_itself
    workers = Set({"workload.loader_workers_per_rank": 4})
    assert said(phrase("Take ", workers), IN_SWEEP) == "Take `DataLoader(..., num_workers=4)`"
    both = phrase(Set({"layout.physical_cores_per_rank": 8, "workload.loader_workers_per_rank": 7}))
    assert said(both, IN_SWEEP) == "`DataLoader(..., num_workers=7)` with `--set layout.physical_cores_per_rank=8`"
    several = phrase(Set({"measure.warmup_steps": 500, "measure.stop": "seconds"}))
    assert said(several, STARTED_BY_ITSELF) == "`measure.warmup_steps: 500, measure.stop: seconds` in a sweep of the script"
    assert said(phrase(Set({"repeat": 6})), STARTED_BY_ITSELF) == "6 starts of the script"
