"""Laws of scaling: what they are fitted to, and what they are said to imply."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.analysis.study.fits import (
    AMDAHL,
    GUSTAFSON,
    USL,
    Fitted,
    Law,
    LawFit,
    Parameter,
    Rates,
    fit,
    fit_all,
    implied,
    laws_frame,
    usl_peak,
)
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Point
from tests.analysis.synthetic import MS, point, write_marconi100, write_runs, write_study

NODES = (1, 2, 4, 8, 16)


def amdahl_speedup(n: float, serial_share: float) -> float:
    return 1 / (serial_share + (1 - serial_share) / n)


def gustafson_speedup(n: float, serial_share: float) -> float:
    return serial_share + (1 - serial_share) * n


def usl_speedup(n: float, contention: float, crosstalk: float) -> float:
    return n / (1 + contention * (n - 1) + crosstalk * n * (n - 1))


def rates(speedup: Callable[[int], float], units: tuple[int, ...] = NODES) -> Rates:
    """One run of each size, 300 samples/s at 1."""
    return {n: [300 * Fraction(speedup(n))] for n in units}


def noisy(speedup: Callable[[int], float], runs: int, percent: float, seed: int) -> Rates:
    draw = np.random.default_rng(seed)
    return {n: [Fraction(300 * speedup(n) * (1 + percent / 100 * x)) for x in draw.standard_normal(runs)] for n in NODES}


def values(found: LawFit) -> Mapping[str, float]:
    return {name: parameter.value for name, parameter in found.parameters.items()}


def said(*fits: LawFit, over: str = "node") -> list[str]:
    return implied([Fitted("", over, each) for each in fits if each.holds], {"": ""})


def test_where_throughput_peaks_by_hand() -> None:
    """sqrt((1 - 0.19) / 0.01) = 9; nowhere without crosstalk; never below one unit."""
    assert usl_peak(0.19, 0.01) == pytest.approx(9)
    assert usl_peak(0.19, 0.0) == math.inf
    assert usl_peak(0.5, 2.0) == 1


@pytest.mark.parametrize(
    ("law", "speedup", "expected"),
    [
        (AMDAHL, lambda n: amdahl_speedup(n, 0.03), {"serial_share": 0.03}),
        (GUSTAFSON, lambda n: gustafson_speedup(n, 0.2), {"serial_share": 0.2}),
        (USL, lambda n: usl_speedup(n, 0.05, 0.002), {"contention": 0.05, "crosstalk": 0.002, "peak": math.sqrt(0.95 / 0.002)}),
    ],
    ids=["amdahl", "gustafson", "usl"],
)
def test_a_law_is_found_in_what_follows_it(law: Law, speedup: Callable[[int], float], expected: dict[str, float]) -> None:
    found = fit(law, rates(speedup))
    assert values(found) == pytest.approx(expected)
    assert found.error_percent == pytest.approx(0, abs=1e-6)
    assert found.left_out_percent == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("strong", [True, False])
@settings(max_examples=10)
@given(rate=st.fractions(Fraction(1, 1000), 10**6))
def test_perfect_scaling_has_no_loss(strong: bool, rate: Fraction) -> None:
    fits = fit_all({n: [n * rate] * 6 for n in NODES}, strong=strong)
    losses = {name: found for each in fits for name, found in each.parameters.items() if name != "peak"}
    assert sorted(losses) == ["contention", "crosstalk", "serial_share"]
    assert all(found.value == 0 and found.interval == (0, 0) for found in losses.values())
    assert said(*fits) == []


def test_more_than_perfect_is_not_negative_loss() -> None:
    """Twice the units, three times the throughput: 0 is the nearest a law allows, and the error shows it."""
    found = fit_all(rates(lambda n: n**1.585), strong=True)
    assert values(found[0]) == {"serial_share": 0}
    assert found[0].error_percent > 10
    assert said(*found) == []


def test_least_squares_by_hand() -> None:
    """Times per sample and unit of 10, 10 and 12 at 1, 2 and 3, all but equal: relative squares are least where their slope is 0.

    For a line a + b n through them: minimum of (a+b-10)^2/100 + (a+2b-10)^2/100 + (a+3b-12)^2/144, solved by its two equations.
    """
    found = fit(AMDAHL, {n: [Fraction(n, time)] for n, time in ((1, 10), (2, 10), (3, 12))})
    weights = [1 / 100, 1 / 100, 1 / 144]
    points = [(1, 10), (2, 10), (3, 12)]
    s0, s1, s2 = (sum(w * n**k for w, (n, _) in zip(weights, points, strict=True)) for k in range(3))
    t0, t1 = (sum(w * n**k * t for w, (n, t) in zip(weights, points, strict=True)) for k in range(2))
    slope = (s0 * t1 - s1 * t0) / (s0 * s2 - s1**2)
    start = (t0 - slope * s1) / s0
    assert values(found) == pytest.approx({"serial_share": slope / (start + slope)})


@pytest.mark.parametrize(
    ("points", "strong", "laws"),
    [(2, True, []), (3, True, ["amdahl"]), (4, True, ["amdahl", "usl"]), (5, False, ["gustafson", "usl"])],
)
def test_laws_need_more_points_than_terms(points: int, strong: bool, laws: list[str]) -> None:
    """Two points fit anything; Amdahl's is about work that stays the same."""
    found = fit_all(rates(lambda n: amdahl_speedup(n, 0.1), NODES[:points]), strong=strong)
    assert [each.law.name for each in found] == laws


def test_intervals_come_from_six_runs_of_every_point() -> None:
    runs = dict(noisy(lambda n: amdahl_speedup(n, 0.03), 6, 1, seed=1))
    assert fit(AMDAHL, runs).parameters["serial_share"].interval is not None
    runs[8] = runs[8][:5]
    assert fit(AMDAHL, runs).parameters["serial_share"].interval is None


@pytest.mark.parametrize(
    ("law", "speedup", "name", "truth"),
    [
        (AMDAHL, lambda n: amdahl_speedup(n, 0.03), "serial_share", 0.03),
        (GUSTAFSON, lambda n: gustafson_speedup(n, 0.1), "serial_share", 0.1),
        (USL, lambda n: usl_speedup(n, 0.03, 0.002), "peak", usl_peak(0.03, 0.002)),
    ],
    ids=["amdahl", "gustafson", "usl"],
)
def test_intervals_of_parameters_hold_the_truth(law: Law, speedup: Callable[[int], float], name: str, truth: float) -> None:
    found = [fit(law, noisy(speedup, 6, 2, seed)).parameters[name].interval or (0, 0) for seed in range(100)]
    assert sum(low <= truth <= high for low, high in found) >= 93


@pytest.mark.dear
@settings(max_examples=20)
@given(shuffle=st.randoms())
def test_the_order_of_runs_and_points_makes_no_difference(shuffle: Random) -> None:
    runs = noisy(lambda n: usl_speedup(n, 0.03, 0.002), 7, 2, seed=3)
    mixed = {n: shuffle.sample(list(runs[n]), 7) for n in shuffle.sample(NODES, 5)}
    assert laws_frame(fitted(runs)).equals(laws_frame(fitted(mixed)))


def fitted(runs: Rates) -> list[Fitted]:
    return [Fitted("", "node", each) for each in fit_all(runs, strong=True)]


@pytest.mark.parametrize(
    ("law", "speedup", "over", "says"),
    [
        (
            AMDAHL,
            lambda n: amdahl_speedup(n, 0.03),
            "node",
            "About 3.0 % of the work is serial. The speedup over one node is at most 33.",
        ),
        (
            GUSTAFSON,
            lambda n: gustafson_speedup(n, 0.08),
            "GPU",
            "Each further GPU adds about 92 % of the throughput of one GPU.",
        ),
        (USL, lambda n: usl_speedup(n, 0.05, 0.0095), "node", "Throughput levels off at about 10 nodes and falls beyond."),
        (
            USL,
            lambda n: usl_speedup(n, 0.05, 1e-6),
            "node",
            "Sharing costs about 5.0 % per node. The speedup over one node is at most 20.",
        ),
    ],
    ids=["amdahl", "gustafson", "usl", "usl with a peak farther out than anyone can tell"],
)
def test_laws_in_words(law: Law, speedup: Callable[[int], float], over: str, says: str) -> None:
    name = {"amdahl": "Amdahl's law", "gustafson": "Gustafson's law"}.get(law.name, "USL")
    assert said(fit(law, rates(speedup)), over=over) == [f"{says} The law is {name}, 1-16 {over}s, off by 0.0 %."]


def test_intervals_are_told() -> None:
    found = fit(AMDAHL, noisy(lambda n: amdahl_speedup(n, 0.03), 6, 0.5, seed=2))
    low, high = found.parameters["serial_share"].interval or (0, 0)
    assert f"of the work is serial (95 %: {100 * low:.1f}-{100 * high:.1f} %)." in said(found)[0]


@pytest.mark.parametrize(("ends", "text"), [((0.0874, 0.0884), "91.2-91.3"), ((0.08, 0.11), "89-92"), ((0.91, 0.93), "7.0-9.0")])
def test_ends_of_an_interval_can_be_told_from_each_other(ends: tuple[float, float], text: str) -> None:
    """Of what each further node adds: 91-91 % is no interval."""
    found = fit(GUSTAFSON, rates(lambda n: gustafson_speedup(n, 0.0879)))
    with_interval = dataclasses.replace(found, parameters={"serial_share": Parameter(0.0879, ends)})
    assert f"(95 %: {text} %)." in said(with_interval)[0]


@pytest.mark.dear
def test_a_law_that_does_not_hold_is_shown_nowhere(tmp_path: Path) -> None:
    """Off by more than a tenth where it was not fitted: in no table, file or sentence; a note names it once."""
    step_ms = {1: 100, 2: 300, 4: 110, 8: 400}
    found = steps_of(tmp_path / "s", {point(nodes, 4): ms for nodes, ms in step_ms.items()})
    assert (found.laws.empty, found.implied) == (True, [])
    (note,) = [note for note in found.notes if "laws" in note]
    assert re.fullmatch(
        r"Fitted laws that miss .* 10 % are not shown: Gustafson's law over 1-8 nodes \(by \d\d %\) and 1 more\.",
        note,
    )
    both = {point(nodes, 4, batch_per_gpu=batch): ms for batch in (32, 64) for nodes, ms in step_ms.items()}
    (note,) = [note for note in steps_of(tmp_path / "b", both).notes if "laws" in note]
    assert "Gustafson's law over 1-8 nodes with batch/GPU 32 (by" in note
    held = find(load_study(write_marconi100(tmp_path / "m")))
    assert (held.laws["left_out_percent"] <= 10).all()


def test_nodes_and_gpus_are_fitted_apart(tmp_path: Path) -> None:
    """Over full nodes (4 GPUs) and over the GPUs of one: neither takes nodes that are half used."""
    step_ms = {(1, 1): 141.5, (1, 2): 149, (1, 4): 153, (2, 4): 170, (4, 4): 180, (2, 2): 900, (8, 2): 900}
    found = steps_of(tmp_path / "s", {point(*layout): ms for layout, ms in step_ms.items()})
    laws = found.laws.drop_duplicates(["over", "law"])
    assert list(laws[["over", "law", "points", "largest"]].itertuples(index=False, name=None)) == [
        ("node", "gustafson", 3, 4),
        ("GPU", "gustafson", 3, 4),
    ]
    assert [text.partition(".")[0] for text in found.implied] == [
        "Each further node adds about 80 % of the throughput of one node",
        "Each further GPU adds about 90 % of the throughput of one GPU",
    ]


def steps_of(folder: Path, steps_ms: Mapping[Point, float]) -> Findings:
    """Of a study with a run of each point."""
    study = write_study(folder, list(steps_ms))
    for each, step_ms in steps_ms.items():
        write_runs(study, each, [round(step_ms * MS)])
    return find(load_study(study))


@pytest.mark.parametrize(("work", "law"), [("epoch", "amdahl"), ("steps", "gustafson")])
def test_the_law_follows_the_kind_of_scaling(tmp_path: Path, work: str, law: str) -> None:
    """As the report's first line names it: an epoch is the same work at every size, a number of steps is not."""
    found = steps_of(tmp_path / "s", {point(nodes, 1, work=work): 1.0 for nodes in (1, 2, 4)})
    assert set(found.laws["law"]) == {law}


def test_laws_of_limited_input_say_nothing_of_training(tmp_path: Path) -> None:
    steps_ms = {point(n, 4, input=given): 100 * n / (0.1 + 0.9 * n) for n in (1, 2, 4, 8) for given in ("full", "io")}
    found = steps_of(tmp_path / "s", steps_ms)
    assert len(set(found.laws["series"])) == 2
    assert [text.partition(".")[0] for text in found.implied] == [
        "Each further node adds about 90 % of the throughput of one node"
    ]
