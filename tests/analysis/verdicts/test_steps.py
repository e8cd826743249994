"""Stalls are found where they are planted, with what they are long in."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping
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


def of(times: Any, own: Any = None, steady: Any = None, **parts: Any) -> Stalls | None:
    """Of one rank, or of those in `own`; parts that are not given were not measured."""
    lasted = np.array(times, dtype=np.float64)
    own = lasted[None, :] if own is None else np.array(own, dtype=np.float64)
    unknown = np.full(lasted.size, np.nan)
    names = ("data_wait", "h2d_exposed", "forward", "backward", "comm_exposed", "optimizer", "record", "other")
    measured = {name: np.array(parts.get(name, unknown), dtype=np.float64) for name in names}
    every, window = np.ones(lasted.size, np.bool_), np.full(len(own), lasted.sum())
    steady = every if steady is None else steady
    return run_stalls(
        RunSteps(steady, lasted * len(own), lasted, measured, own, np.arange(lasted.size), window, lasted, {}), every
    )


def test_every_tenth_step_longer() -> None:
    """Nine of 100 and one of 140: 104 on average, 4 % above the median; a tenth of them is long."""
    found = of([100.0] * 9 * 3 + [140.0] * 3)
    assert found is not None
    assert (found.mean_ns, found.median_ns, found.long_share, found.long_ns, found.other_ns) == (104, 100, 0.1, 140, 100)


@pytest.mark.parametrize(
    ("times", "is_stall"),
    [
        ([100.0] * 18 + [129.0] * 2, False),
        ([100.0] * 18 + [131.0] * 2, True),
        ([100.0] * (FEWEST - 2) + [900.0], False),
    ],
    ids=["below 3 %", "above 3 %", "too few: one of them alone would decide"],
)
def test_three_per_cent_are_a_stall(times: list[float], is_stall: bool) -> None:
    assert (of(times) is not None) == is_stall


def test_what_chance_does_is_no_stall() -> None:
    """Of 1000 runs of 25 steps with 20 % of symmetric noise mean and median are 3 % apart in many; that is told of few."""
    noise = np.random.default_rng(1).normal(100, 20, (1000, 25))
    apart = np.abs(noise.mean(axis=1) / np.median(noise, axis=1) - 1) > 0.03
    assert apart.mean() > 0.2
    assert np.mean([of(each) is not None for each in noise]) < 0.03


def test_a_rank_that_stalls_makes_the_others_communicate() -> None:
    """Rank 1 computes 40 longer in a tenth of the steps, rank 0 waits for it: computation, not communication, is what is long."""
    long = np.arange(40) % 10 == 0
    times, mine = np.where(long, 140.0, 100.0), np.where(long, 130.0, 90.0)
    own = [np.full(40, 90.0), mine]
    found = of(times, own, forward=(30 + (mine - 60)) / 2, comm_exposed=times - (90 + mine) / 2, data_wait=[1.0] * 40)
    assert found is not None
    assert found.of == {"communication": 0.0, "data": 0.0, "records": 0.0, "computation": 1.0}


def test_a_network_that_stalls_is_communication() -> None:
    times = np.where(np.arange(40) % 10 == 0, 140.0, 100.0)
    found = of(times, [np.full(40, 90.0)] * 2, forward=[90.0] * 40, comm_exposed=times - 90)
    assert found is not None
    assert found.of["communication"] == 1.0


def test_steps_after_a_pause_are_known() -> None:
    """Every 20th step is not timed, and the two that follow it are long: all long ones come after a pause."""
    since = np.arange(200) % 20
    found = of(np.where((since > 0) & (since < 3), 200.0, 100.0), steady=since > 0)
    assert found is not None
    assert found.after_pause == 1.0


def test_two_kinds_of_steps_by_hand(tmp_path: Path) -> None:
    """Ten of 100 ns after ten of 50 ns: all of the variance lies between them, all slow ones come later."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_run(study, point(1, 1), Recorded(step_ns=lambda rank, step: 50 if step <= 10 else 100, steps=20))
    found = load_study(study).runs[0].rhythm
    assert found is not None
    assert (found.fast_ns, found.slow_ns, found.slow_share, found.slow_later) == (50, 100, 0.5, 1.0)
    assert found.apart == pytest.approx(1)
    write_run(study, point(1, 1), Recorded(step_ns=50, steps=20, job="101"))
    assert load_study(study).runs[0].rhythm is None


Lengths = Callable[[int, Random], float]
"""(step, chance) -> what it lasts longer, of a typical step."""


def spikes(_: int, draw: Random) -> float:
    """One step in twenty."""
    return draw.choice([0.5, 1.0, 4.0]) if draw.random() < 0.05 else 0


PLANTED: Mapping[str, tuple[Lengths, str, str, set[str]]] = {
    "a loader of four workers": (lambda step, _: 2.0 * (step % 4 == 0), "data_wait", "waiting for data", {"input-bound"}),
    "every tenth step": (lambda step, _: 0.4 * (step % 10 == 7), "forward", "computation", set()),
    "spikes": (spikes, "comm_exposed", "communication", {"communication-bound"}),
    "slow records": (lambda step, _: 3.0 * (step % 50 == 0), "record", "writing records", set()),
}
"""What is planted -> by how much steps are longer, in which part, what is to be told, and verdicts that may be told, too."""


def recorded_run(lengths: Lengths, part: str, draw: Random, noise: tuple[float, float], level: float) -> Recorded:
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
        return found | {part: found.get(part, 0) + more}

    return Recorded(
        step_ns=lambda rank, step: round(times[step] + jitter[rank][step + 1] - jitter[rank][step]),
        shares=shares,
        steps=STEPS,
        protocol={"warmup_steps": 1, "warmup_detected_steps": warmup_steps([10 * round(times[0]), *map(round, times[1:])])},
    )


@pytest.mark.dear
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PLANTED)
def test_stalls_are_found_where_they_are(tmp_path: Path, name: str, seed: int) -> None:
    """With their cause, one advice and no verdict that contradicts it, in noise from 0.5 to 5 % (AR(1) 0, 0.5, 0.9), jitter of
    1 %, runs that differ by 1 %. Clean studies are those of test_planted.py and test_verdicts.py."""
    (lengths, part, what, others), draw = PLANTED[name], Random(seed)
    noise, repeat = (draw.uniform(0.005, 0.05), draw.choice([0.0, 0.5, 0.9])), draw.choice([1, 3])
    sizes = draw.choice([[(1, 1), (1, 2)], [(1, 1), (1, 4)], [(1, 1), (1, 2), (1, 4), (2, 4)]])
    points = [point(*size, comm="off") for size in sizes]
    study = write_study(tmp_path / "s", points, repeat)
    for each, run in itertools.product(points, range(1, repeat + 1)):
        level = 100 * MS * (1 + draw.gauss(0, 0.01))
        write_run(study, each, recorded_run(lengths, part, draw, noise, level), run)
    found = find(load_study(study)).verdicts
    mine = [each.evidence for each in found if each.name == "stalls"]
    assert mine
    assert all(re.search(f"(?i){what} accounts for \\d+ % of the difference", evidence) for evidence in mine)
    assert {each.name for each in found} - {"stalls", "too few steps"} <= others
    assert len({each.advice for each in found if each.name in {"stalls", *others}}) == 1


def stalling(folder: Path, recorded: Recorded, **changes: Any) -> Verdict:
    """The verdict on stalls of one run."""
    study = write_study(folder, [point(1, 1, **changes)])
    write_run(study, point(1, 1, **changes), recorded)
    (found,) = [each for each in find(load_study(study)).verdicts if each.name == "stalls"]
    return found


def test_a_resumed_run_that_stalls_after_checkpoints_is_told_so(tmp_path: Path) -> None:
    slow = Recorded(step_ns=lambda rank, step: (300 if step % 25 in {1, 2} else 100) * MS, steps=100, pauses=range(25, 101, 25))
    found = stalling(tmp_path / "s", slow, resume=True, checkpoint_every_min=5.0)
    assert "The long steps are the first after a checkpoint" in found.evidence
    assert "`--set measure.checkpoint_every_min=10`" in found.advice


TENTH = Recorded(step_ns=lambda rank, step: (340 if step % 10 == 7 else 100) * MS, steps=100)
"""Every tenth step computes 240 ms longer: 24 % on top."""


def test_the_sentence_says_what_stalls_cost(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [point(1, 1), point(1, 2)])
    write_run(study, point(1, 1), Recorded(step_ns=100 * MS, steps=100))
    write_run(study, point(1, 2), TENTH)
    assert "The main limit is steps that sometimes stall." in " ".join(find(load_study(study)).sentences)


@pytest.mark.parametrize(
    ("foreign", "first"),
    [(0.3, "Resolve the verdict `shared node` first"), (0.0, "Exclude older objects from Python's garbage collection")],
)
def test_where_others_compute_that_comes_first(tmp_path: Path, foreign: float, first: str) -> None:
    telemetry = {"telemetry": {"nodes": [{"host": "r000", "cpu_foreign_share": foreign}]}}
    assert stalling(tmp_path / "s", dataclasses.replace(TENTH, end=telemetry)).advice.startswith(first)
