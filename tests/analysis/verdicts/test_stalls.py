"""Stalls are found where they are planted, with what they are long in, and nowhere else."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis.records.steps import RunSteps
from hpcddp.analysis.runs.step_times import FEWEST, Stalls, run_stalls
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import find
from hpcddp.worker.training.stop_rule import warmup_steps
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

PARTS = {"data_wait": 0.02, "forward": 0.3, "backward": 0.5, "comm_exposed": 0.1, "optimizer": 0.08}
STEPS = 300


def run_steps(times: Any, own: Any = None, **parts: Any) -> RunSteps:
    """Of one rank, or of those in `own`; parts that are not given were not measured."""
    lasted = np.array(times, dtype=np.float64)
    own = lasted[None, :] if own is None else np.array(own, dtype=np.float64)
    unknown = np.full(lasted.size, np.nan)
    names = ("data_wait", "h2d_exposed", "forward", "backward", "comm_exposed", "optimizer", "record", "other")
    measured = {name: np.array(parts.get(name, unknown), dtype=np.float64) for name in names}
    steady, window = np.ones(lasted.size, np.bool_), np.full(len(own), lasted.sum())
    return RunSteps(steady, lasted * len(own), lasted, measured, own, np.arange(lasted.size), window, lasted, {})


def of(steps: RunSteps) -> Stalls | None:
    return run_stalls(steps, np.ones(steps.steady.size, np.bool_))


def test_every_tenth_step_longer() -> None:
    """Nine of 100 and one of 140: 104 on average, 4 % above the median; a tenth of them is long."""
    found = of(run_steps([100.0] * 9 * 3 + [140.0] * 3))
    assert found is not None
    assert (found.mean_ns, found.median_ns, found.long_share, found.long_ns, found.other_ns) == (104, 100, 0.1, 140, 100)


@pytest.mark.parametrize(("longer", "is_stall"), [(29.0, False), (31.0, True)])
def test_three_per_cent_are_a_stall(longer: float, is_stall: bool) -> None:
    """A tenth of 29 or of 31 % more."""
    assert (of(run_steps([100.0] * 18 + [100.0 + longer] * 2)) is not None) == is_stall


def test_too_few_steps_have_no_stalls() -> None:
    """One of them alone would decide."""
    assert of(run_steps([100.0] * (FEWEST - 2) + [900.0])) is None


def test_what_chance_does_is_no_stall() -> None:
    """Of 1000 runs of 25 steps with 20 % of symmetric noise mean and median are 3 % apart in many; that is told of few."""
    noise = np.random.default_rng(1).normal(100, 20, (1000, 25))
    apart = np.abs(noise.mean(axis=1) / np.median(noise, axis=1) - 1) > 0.03
    stalls = [of(run_steps(each)) is not None for each in noise]
    assert apart.mean() > 0.2
    assert np.mean(stalls) < 0.03


def test_a_rank_that_stalls_makes_the_others_communicate() -> None:
    """Rank 1 computes 40 longer in a tenth of the steps, rank 0 waits for it: computation, not communication, is what is long."""
    long = np.arange(40) % 10 == 0
    times, mine = np.where(long, 140.0, 100.0), np.where(long, 130.0, 90.0)
    own = [np.full(40, 90.0), mine]
    found = of(run_steps(times, own, forward=(30 + (mine - 60)) / 2, comm_exposed=times - (90 + mine) / 2, data_wait=[1.0] * 40))
    assert found is not None
    assert found.of == {"communication": 0.0, "data": 0.0, "records": 0.0, "computation": 1.0}


def test_a_network_that_stalls_is_communication() -> None:
    """Ranks need as long as ever by themselves."""
    times = np.where(np.arange(40) % 10 == 0, 140.0, 100.0)
    found = of(run_steps(times, [np.full(40, 90.0)] * 2, forward=[90.0] * 40, comm_exposed=times - 90))
    assert found is not None
    assert found.of["communication"] == 1.0


def test_steps_after_a_pause_are_known() -> None:
    """Every 20th step is not timed, and the two that follow it are long: all long ones come after a pause."""
    since = np.arange(200) % 20
    steps = run_steps(np.where((since > 0) & (since < 3), 200.0, 100.0))
    steps = dataclasses.replace(steps, steady=since > 0)
    found = of(steps)
    assert found is not None
    assert found.after_pause == 1.0


Lengths = Callable[[int, Random], float]
"""(step, chance) -> what it lasts longer, of a typical step."""


def spikes(_: int, draw: Random) -> float:
    """One step in twenty."""
    return draw.choice([0.5, 1.0, 4.0]) if draw.random() < 0.05 else 0


PLANTED: Mapping[str, tuple[Lengths, str | None, str, set[str]]] = {
    "a loader of four workers": (lambda step, _: 2.0 if step % 4 == 0 else 0, "data_wait", "data", {"input-bound"}),
    "every tenth step": (lambda step, _: 0.4 if step % 10 == 7 else 0, "forward", "computation", set()),
    "spikes": (spikes, "comm_exposed", "communication", {"communication-bound"}),
    "slow records": (lambda step, _: 3.0 if step % 50 == 0 else 0, "record", "records", set()),
}
"""What is planted -> by how much steps are longer, in which part, what is to be told, and verdicts that may be told, too."""


def recorded_run(lengths: Lengths, part: str | None, draw: Random, noise: tuple[float, float], level: float) -> Recorded:
    """Ranks whose steps end with jitter; AR(1) noise of that deviation and dependence."""
    sigma, phi = noise
    deviation, times, longer = 0.0, [], []
    for step in range(STEPS + 1):
        deviation = phi * deviation + draw.gauss(0, sigma * (1 - phi**2) ** 0.5)
        longer.append(lengths(step, draw))
        times.append(level * (1 + deviation + longer[-1]))
    jitter = [[draw.uniform(-0.01, 0.01) * level for _ in range(STEPS + 2)] for _ in range(8)]

    def shares(step: int) -> Mapping[str, float]:
        more = longer[step] / (1 + longer[step])
        found = {name: share * (1 - more) for name, share in PARTS.items()}
        return found | ({part: found.get(part, 0) + more} if part else {})

    return Recorded(
        step_ns=lambda rank, step: round(times[step] + jitter[rank][step + 1] - jitter[rank][step]),
        shares=shares,
        steps=STEPS,
        protocol={"warmup_steps": 1, "warmup_detected_steps": warmup_steps([10 * round(times[0]), *map(round, times[1:])])},
    )


def verdicts_of(folder: Path, lengths: Lengths, part: str | None, seed: int) -> list[Verdict]:
    """Of a study of one and two nodes with runs that differ by 1 %."""
    draw = Random(seed)
    noise, repeat = (draw.uniform(0.005, 0.05), draw.choice([0.0, 0.5, 0.9])), draw.choice([1, 3])
    sizes = draw.choice([[(1, 1), (1, 2)], [(1, 1), (1, 4)], [(1, 1), (1, 2), (1, 4), (2, 4)]])
    points = [point(*size, comm="off") for size in sizes]
    study = write_study(folder / "s", points, repeat)
    for each, run in itertools.product(points, range(1, repeat + 1)):
        level = 100 * MS * (1 + draw.gauss(0, 0.01))
        write_run(study, each, recorded_run(lengths, part, draw, noise, level), run)
    return find(load_study(study)).verdicts


def of_planted(case: tuple[str, int], folder: Path) -> list[tuple[str, str, str]]:
    """Another process calls this."""
    name, seed = case
    lengths, part, _, _ = PLANTED[name]
    return [(each.name, each.evidence, each.advice) for each in verdicts_of(folder / f"{name}-{seed}", lengths, part, seed)]


def of_clean(seed: int, folder: Path) -> list[str]:
    """Another process calls this."""
    return [f"{each.name}: {each.evidence}" for each in verdicts_of(folder / f"clean-{seed}", lambda *_: 0.0, None, 1000 + seed)]


WORDS = {"data": "waiting for data", "computation": "computation", "communication": "communication", "records": "writing records"}


@pytest.mark.dear
def test_stalls_are_found_where_they_are_and_nowhere_else(tmp_path: Path) -> None:
    """Each planted stall in each of four studies, with its cause and no verdict that contradicts it; in none of 50 clean ones,
    with noise from 0.5 to 5 % (AR(1) 0, 0.5, 0.9), jitter of 1 %, runs that differ by 1 %, 1 to 8 ranks.
    """
    cases = [(name, seed) for name in PLANTED for seed in range(4)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        planted = list(pool.map(of_planted, cases, itertools.repeat(tmp_path)))
        clean = list(pool.map(of_clean, range(50), itertools.repeat(tmp_path), chunksize=5))
    for (name, _), found in zip(cases, planted, strict=True):
        _, _, what, others = PLANTED[name]
        mine = [(evidence, advice) for verdict, evidence, advice in found if verdict == "stalls"]
        assert mine, (name, found)
        assert all(f"of the difference is {WORDS[what]}" in evidence for evidence, _ in mine), (name, mine)
        assert {verdict for verdict, _, _ in found} - {"stalls", "too few steps"} <= others, (name, found)
        advices = {advice for verdict, _, advice in found if verdict in {"stalls", *others}}
        assert len(advices) == 1, (name, advices)
    assert [found for found in clean if any(each.startswith("stalls") for each in found)] == []


def test_a_resumed_run_that_stalls_after_checkpoints_is_told_so(tmp_path: Path) -> None:
    """The three steps after every pause are three times as long."""
    what = point(1, 1, resume=True, checkpoint_every_min=5.0)
    study = write_study(tmp_path / "s", [what])
    recorded = Recorded(
        step_ns=lambda rank, step: (300 if step % 25 in {1, 2} else 100) * MS, steps=100, pauses=range(25, 101, 25)
    )
    write_run(study, what, recorded)
    (found,) = [each for each in find(load_study(study)).verdicts if each.name == "stalls"]
    assert "they are the first steps after a checkpoint" in found.evidence
    assert "`--set measure.checkpoint_every_min=10`" in found.advice


def test_the_sentence_says_what_stalls_cost(tmp_path: Path) -> None:
    """Every tenth step of two ranks computes 240 ms longer: 24 % on top, and nothing else tells of it."""
    points = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        long = each.ranks == 2
        times = Recorded(step_ns=lambda rank, step, long=long: (340 if long and step % 10 == 7 else 100) * MS, steps=100)  # type: ignore[misc]
        write_run(study, each, times)
    assert "held back most by steps that stall now and then" in " ".join(find(load_study(study)).sentences)


def test_where_others_compute_that_comes_first(tmp_path: Path) -> None:
    """A third of the node's CPU time is others': no word of garbage collection, which is named where nobody else is there."""
    for foreign, first in ((0.3, "others computed on the node"), (0.0, "Python's garbage collection may")):
        study = write_study(tmp_path / str(foreign), [point(1, 1)])
        telemetry = {"telemetry": {"nodes": [{"host": "r000", "cpu_foreign_share": foreign}]}}
        recorded = Recorded(step_ns=lambda rank, step: (340 if step % 10 == 7 else 100) * MS, steps=100, end=telemetry)
        write_run(study, point(1, 1), recorded)
        (found,) = [each for each in find(load_study(study)).verdicts if each.name == "stalls"]
        assert found.advice.startswith(first)
