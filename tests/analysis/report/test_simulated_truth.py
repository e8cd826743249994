"""What analysis says of simulated runs is what passed in them, whatever disturbs the steps and however many ranks there are."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Point
from hpcddp.core.records import EPOCH_COLUMNS
from tests.analysis import simulation
from tests.analysis.simulation import CASES, STALLING, WARMUP_STEPS, Case, Events, simulate, write_attempt
from tests.analysis.synthetic import point, write_study

LAYOUTS = ((1, 1), (1, 2), (2, 4), (16, 4), (128, 4))
"""1 to 64 ranks, and 512 in `make soak`."""

TRIED = ("clean", "boundary jitter of 5 %", "every fourth batch late", "pauses")
"""Of CASES, in `make test`; `make soak` has all."""

TIMED_STEPS = 200
STEPS = WARMUP_STEPS + TIMED_STEPS
SAMPLES = 1_000_000
OFF_BY = 0.002

GATES = ("parameters agree", "loss is finite", "ranks stepped equally", "every epoch reshuffled", "no restart inside the window")
PASSED = [{"name": gate, "passed": True, "evidence": "simulated"} for gate in GATES]


def written(folder: Path, points: list[Point], events: dict[Point, Events]) -> Findings:
    """A study of these runs, read back."""
    study = write_study(folder, points, repeat=max(each.start.shape[0] for each in events.values()))
    for each in points:
        for run in range(events[each].start.shape[0]):
            launch = launched(each, run)
            attempt = study.attempt_dir(each.label, run + 1, launch["job"], 0)
            write_attempt(attempt, events[each], run, launch, {"global_batch": each.global_batch, "gates": PASSED})
    return find(load_study(study), train_epochs=None)


def launched(each: Point, run: int) -> dict[str, Any]:
    """launch.json."""
    of_point = {"point": each.id, "ranks": each.ranks, "ranks_per_node": each.layout.gpus_per_node}
    of_run = {"run": run + 1, "job": str(1000 + run), "restart": 0, "started_unix_ns": simulation.START_UNIX_NS}
    found = {"backend": "slurm", "versions": {"torch": "2.7.1"}, "env_id": "simulated", "gpus": ["V100"], "profile": {}}
    hosts = [f"node{node:03d}" for node in range(each.layout.nodes)]
    return {"schema": 1, **of_point, **of_run, **found, "hosts": hosts, "data": {"samples": SAMPLES}}


def study_of(
    folder: Path, case: Case, layouts: tuple[tuple[int, int], ...], runs: int, seed: int
) -> tuple[Findings, dict[Point, Events]]:
    """One point a layout, written and read, and what happened in its runs."""
    points = [point(*layout, warmup_steps=WARMUP_STEPS, steps=TIMED_STEPS) for layout in layouts]
    events = {each: simulate(case, runs, each.ranks, STEPS, seed + each.ranks) for each in points}
    return written(folder, points, events), events


def names(found: Findings) -> set[str]:
    return {verdict.name for verdict in found.verdicts}


@pytest.mark.dear
@pytest.mark.parametrize(
    ("name", "layouts"),
    [*((name, LAYOUTS[:4]) for name in TRIED), *(pytest.param(name, LAYOUTS, marks=pytest.mark.soak) for name in CASES)],
)
def test_rate_epoch_and_node_hours_are_what_passed(tmp_path: Path, name: str, layouts: tuple[tuple[int, int], ...]) -> None:
    """Within 0.2 %."""
    found, events = study_of(tmp_path / "study", CASES[name], layouts, runs=1, seed=1)
    rows = {(row["nodes"], row["gpus_per_node"]): row for _, row in found.shown.iterrows()}
    for each, happened in events.items():
        row, step_s = rows[each.layout.nodes, each.layout.gpus_per_node], float(happened.passed_s()[0])
        epoch_s = SAMPLES / each.global_batch * step_s
        assert row["samples_per_s"] == pytest.approx(each.global_batch / step_s, rel=OFF_BY)
        assert row["epoch_s"] == pytest.approx(epoch_s, rel=OFF_BY)
        assert row["node_h_per_epoch"] == pytest.approx(epoch_s * each.layout.nodes / 3600, rel=OFF_BY)


def trained(folder: Path, each: Point, events: Events, ends: list[int]) -> Findings:
    """A study of a training with these epochs, read back."""
    study = write_study(folder, [each])
    attempt = study.attempt_dir(each.label, 1, "1000", 0)
    train_ns = (events.end - events.start)[0, 0].cumsum()[np.array(ends) - 1].tolist()
    rows = [
        (number, end, end * each.global_batch, ns, ns + number, 10**10, each.global_batch, "", "", "", "")
        for number, (end, ns) in enumerate(zip(ends, train_ns, strict=True), start=1)
    ]
    text = "\n".join(",".join(map(str, row)) for row in (EPOCH_COLUMNS, *rows)) + "\n"
    attempt.mkdir(parents=True)
    (attempt / "epochs.csv").write_text(text)
    of_epochs = {"epoch_rows": len(rows), "epoch_crc32": zlib.crc32(text.encode())}
    end = {"global_batch": each.global_batch, "gates": PASSED, **of_epochs}
    write_attempt(attempt, events, 0, launched(each, 0), end)
    return find(load_study(study))


@pytest.mark.parametrize("steps", [1, 2, 7, 32])
@pytest.mark.parametrize("layout", [(1, 1), (1, 4), (16, 4)])
def test_an_epoch_lasts_with_its_first_batch(tmp_path: Path, layout: tuple[int, int], steps: int) -> None:
    """At 1 to 64 ranks, of 1 to 32 steps, with a first batch that takes twice as long as a step: no other time is told, and it is
    the data that are waited for, and neither stalls nor a warm-up.
    """
    ends = list(range(steps, WARMUP_STEPS + max(96, 12 * steps) + 1, steps))
    each = point(*layout, work="train", epochs=len(ends), warmup_steps=WARMUP_STEPS)
    case = Case(jitter_percent=1.0, pauses=(0, *ends[:-1]), first_ms=200.0)
    events = simulate(case, 1, each.ranks, ends[-1], seed=steps)
    found = trained(tmp_path / "study", each, events, ends)
    begins = [begin for begin in (0, *ends[:-1]) if begin >= WARMUP_STEPS]
    lasted_ns = events.end[0][:, np.array(begins) + steps - 1] - events.start[0][:, begins]
    row = found.shown.iloc[0]
    assert row["epoch_s"] == pytest.approx(lasted_ns.mean() / 1e9, rel=OFF_BY)
    assert row["samples_per_s"] == pytest.approx(steps * each.global_batch / (lasted_ns.mean() / 1e9), rel=OFF_BY)
    assert row["data_wait_s"] == pytest.approx(events.parts["data_wait_ns"][0][:, begins[0] :].mean() / 1e9)
    odd = {"stalls", "warm-up inside the window", "contradicting figures", "burst network"} & names(found)
    assert not odd


@pytest.mark.parametrize("name", CASES)
def test_stalls_are_named_where_they_are(tmp_path: Path, name: str) -> None:
    found, _ = study_of(tmp_path / "study", CASES[name], ((1, 1), (1, 4), (2, 4)), runs=2, seed=2)
    assert ("stalls" in names(found)) == (name in STALLING)


@pytest.mark.dear
@pytest.mark.parametrize("seeds", [range(9), pytest.param(range(9, 50), marks=pytest.mark.soak)], ids=str)
def test_clean_studies_have_no_verdict(tmp_path: Path, seeds: range) -> None:
    """None of 50 (but that 200 steps may be too few): noise that is short- or long-lived, jitter of none to 5 % of the step;
    the first nine have every combination.
    """
    odd: dict[int, set[str]] = {}
    for seed in seeds:
        case = Case(phi=(0.0, 0.5, 0.9)[seed % 3], jitter_percent=(0.0, 1.0, 5.0)[seed // 3 % 3], noise_percent=1.0 + seed % 5)
        found, _ = study_of(tmp_path / f"study{seed}", case, ((1, 1), (1, 4), (2, 4)), runs=2, seed=100 * seed)
        odd[seed] = names(found) - {"too few steps"}
    assert not any(odd.values()), odd


def holds(folder: Path, case: Case, layout: tuple[int, int], seed: int, truth: float) -> bool:
    """Whether the interval of a study of six runs holds this many samples per second."""
    found, _ = study_of(folder, case, (layout,), runs=6, seed=seed)
    row = found.shown.iloc[0]
    return bool(row["samples_per_s_low"] <= truth <= row["samples_per_s_high"])


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_the_truth(tmp_path: Path, name: str) -> None:
    """Of 450 studies at 1, 2 and 8 ranks at least 93 % have an interval that holds the rate of the median run of 4001."""
    held = []
    for layout in ((1, 1), (1, 2), (2, 4)):
        each = point(*layout, warmup_steps=WARMUP_STEPS, steps=TIMED_STEPS)
        passed_s = simulate(CASES[name], 4001, each.ranks, STEPS, seed=9).passed_s()
        truth = each.global_batch / float(np.median(passed_s))
        held += [holds(tmp_path / f"{each.label}-{seed}", CASES[name], layout, 1000 + 10 * seed, truth) for seed in range(150)]
    print(f"{name:28} {100 * np.mean(held):.1f} % of {len(held)} studies")
    assert np.mean(held) >= 0.93
