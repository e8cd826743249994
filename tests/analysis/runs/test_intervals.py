"""How well medians are known: over runs and within them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.records.steps import mean_step_ns, over_ranks
from hpcddp.analysis.runs import intervals
from hpcddp.analysis.runs.intervals import (
    half_width_percent,
    interpolation,
    interval_rank,
    mean_half_percent,
    range_confidence,
    spread,
)
from hpcddp.analysis.study import effects
from hpcddp.analysis.study.effects import ratio
from hpcddp.analysis.study.scaling import efficiency_of_runs
from hpcddp.core.batch_means import BATCHES, mean_interval
from hpcddp.core.records import PARTS


@pytest.mark.parametrize("n", range(6, 60))
def test_the_interval_is_the_narrowest_with_95_percent(n: int) -> None:
    """P(the median lies outside) = 2 P(Binomial(n, 1/2) < k) is at most 5 % for k and more for k + 1: that of the sign test."""
    rank = interval_rank(n)
    assert rank is not None

    def missed(k: int) -> Fraction:
        return Fraction(2 * sum(math.comb(n, i) for i in range(k)), 2**n)

    assert missed(rank) <= Fraction(5, 100) < missed(rank + 1)
    assert 0 <= interpolation(n, rank) < 1, "between the value that holds 95 % and the one that does not"


def test_below_six_runs_the_range_is_shown_from_six_on_the_interval() -> None:
    """Of six values the outermost, in any order; of seven a bit inside of them; of equal ones exactly their value."""
    assert spread([Fraction(5)]) == (None, None, None)
    assert spread([Fraction(v) for v in (3, 1, 5, 4, 2)]) == (1.0, 5.0, "range")
    assert spread([Fraction(v) for v in (6, 1, 5, 2, 4, 3)]) == (1.0, 6.0, "95 %")
    low, high, kind = spread([Fraction(v) for v in range(1, 8)])
    assert [low, high] == pytest.approx([1 + 11 / 15, 7 - 11 / 15])
    assert kind == "95 %"
    assert spread([Fraction(1, 3)] * 7) == (1 / 3, 1 / 3, "95 %")


def test_interpolation_by_hand() -> None:
    """n = 7: the outermost hold 63/64, the next 56/64, so I = (63/64 - 0.95) / (7/64) = 11/35 and 6 I / (1 + 5 I) = 11/15."""
    assert interpolation(7, 1) == pytest.approx(11 / 15)


def test_how_often_a_range_holds_the_median() -> None:
    assert [range_confidence(n) for n in (2, 3, 4, 5, 6)] == [0.5, 0.75, 0.875, 0.9375, 0.96875]


def test_half_the_width_of_runs() -> None:
    """Nine runs of 1 to 9: the interval is 5 -+ (3 - 0.2279), 55.44 % of 5; five runs have none."""
    assert half_width_percent([Fraction(v) for v in range(1, 10)]) == pytest.approx(55.442, abs=0.001)
    assert half_width_percent([Fraction(v) for v in range(1, 6)]) is None


def test_a_run_of_few_steps_has_no_interval() -> None:
    assert mean_half_percent(np.array([])) is None
    assert mean_half_percent(np.arange(1.0, BATCHES)) is None
    assert mean_half_percent(np.arange(1.0, BATCHES + 1)) is not None


Floats = NDArray[np.float64]
Draw = np.random.Generator

STUDIES = 1000
MORE_STUDIES = 4000
"""For docs/method.md."""

RATIOS = 400
"""Fewer: each is drawn 2000 times."""

STEPS = 500
MS = 1_000_000
JITTER_MS = 2.0
"""Standard deviation of where a rank ends a step, about where all ranks' step ends."""


def autoregressive(phi: float) -> Callable[[Draw, int], Floats]:
    """(steps, runs) of 5 % noise, of which each step takes `phi` of the one before."""

    def steps(draw: Draw, runs: int) -> Floats:
        found = draw.standard_normal((STEPS, runs))
        for step in range(1, STEPS):
            found[step] = phi * found[step - 1] + math.sqrt(1 - phi**2) * found[step]
        return 100 + 5 * found

    return steps


def bursts(draw: Draw, runs: int) -> Floats:
    """Ten steps in sixty, on average in a row, last 30 ms longer."""
    slow, found = draw.random(runs) < 1 / 6, 95 + 2 * draw.standard_normal((STEPS, runs))
    for step in range(STEPS):
        found[step] += 30 * slow
        chance = draw.random(runs)
        slow = np.where(slow, chance >= 0.1, chance < 0.02)
    return found


def spikes(draw: Draw, runs: int) -> Floats:
    """2 % of the steps last 200 ms longer."""
    return 96 + 2 * draw.standard_normal((STEPS, runs)) + 200 * (draw.random((STEPS, runs)) < 0.02)


def stalls(draw: Draw, runs: int) -> Floats:
    """Every fourth step, from any on, lasts 200 ms longer, as with four loader workers: 2 samples/s told for 1 by the median."""
    found: Floats = (
        50 + 2 * draw.standard_normal((STEPS, runs)) + 200 * ((np.arange(STEPS)[:, None] + draw.integers(4, size=runs)) % 4 == 0)
    )
    return found


def drift(draw: Draw, runs: int) -> Floats:
    """From 95 to 105 ms, as clocks of GPUs that get warm."""
    return np.linspace(95, 105, STEPS)[:, None] + 2 * draw.standard_normal((STEPS, runs))


CASES: dict[str, Callable[[Draw, int], Floats]] = {
    "AR(1) 0": autoregressive(0.0),
    "AR(1) 0.5": autoregressive(0.5),
    "AR(1) 0.9": autoregressive(0.9),
    "bursts": bursts,
    "spikes": spikes,
    "stalls": stalls,
    "drift": drift,
}


def run_means(case: str, ranks: int, studies: int, runs: int) -> Floats:
    """(studies, runs): mean steps. Of what jitters, a rank's window has its two ends only, and the mean over ranks theirs."""
    draw = np.random.default_rng(list(CASES).index(case) + 100 * runs)
    ends = draw.standard_normal((2, studies * runs)) * JITTER_MS / math.sqrt(ranks)
    means: Floats = CASES[case](draw, studies * runs).mean(axis=0) + (ends[1] - ends[0]) / STEPS
    return means.reshape(studies, runs)


def coverage(studies: Floats, truth: float) -> tuple[float, float]:
    """Share of studies (rows) whose interval holds the truth, and the mean width."""
    ends = np.array([spread([Fraction(value) for value in runs])[:2] for runs in studies], dtype=np.float64)
    return float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))), float(np.mean(ends[:, 1] - ends[:, 0]))


def held_least(case: str, ranks: int, runs: int, studies: int) -> float:
    """The smallest share over runs that differ by 0, 1 and 3 % (standard deviation); all are printed."""
    means, shares = run_means(case, ranks, studies, runs), []
    effect = np.random.default_rng(7).standard_normal(means.shape)
    for percent in (0, 1, 3):
        share, width = coverage(means + percent * effect, 100)
        shares.append(share)
        print(f"{case:9}  {ranks:3} ranks  {runs:2} runs +-{percent} %: {100 * share:.1f} % of studies, width {width:.2f} %")
    return min(shares)


@pytest.mark.parametrize("runs", [6, 10])
@pytest.mark.parametrize("case", CASES)
def test_the_interval_over_runs_holds_the_truth(case: str, runs: int) -> None:
    assert held_least(case, 8, runs, STUDIES) >= 0.93


@pytest.mark.soak
@pytest.mark.parametrize("runs", [6, 10])
@pytest.mark.parametrize("ranks", [1, 8, 64, 512])
@pytest.mark.parametrize("case", CASES)
def test_the_interval_over_runs_holds_the_truth_in_more_studies(case: str, ranks: int, runs: int) -> None:
    assert held_least(case, ranks, runs, MORE_STUDIES) >= 0.93


@pytest.mark.parametrize("ranks", [1, 2, 64, 512])
@pytest.mark.parametrize("case", CASES)
def test_the_median_of_runs_is_not_biased(case: str, ranks: int) -> None:
    """Its mean over 1000 studies of ten runs is within 0.2 % of the truth, whatever the number of ranks."""
    bias = float(np.median(run_means(case, ranks, STUDIES, 10), axis=1).mean()) - 100
    print(f"{case:9}  {ranks:3} ranks: {bias:+.3f} %")
    assert abs(bias) <= 0.2


def rows_of(step_ms: Floats, ranks: int, draw: Draw, jitter_ms: float = JITTER_MS) -> list[Columns]:
    """Step rows of ranks that wait for each other in every step, and end it a little earlier or later."""
    ends, number = np.cumsum(step_ms), np.arange(step_ms.size)
    empty = {f"{part}_ns": np.full(step_ms.size, np.nan) for part in (*PARTS, "h2d_hidden")}
    found = []
    for _ in range(ranks):
        mine = np.round((ends + jitter_ms * draw.standard_normal(ends.size)) * MS).astype(np.int64)
        begin = round(jitter_ms * MS * draw.standard_normal())
        found.append({"step": number, "flags": 0 * number, "total_ns": np.diff(mine, prepend=begin), **empty})
    return found


@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_the_jobs_interval_is_that_of_analysis(ranks: int) -> None:
    """Rank 0 stops by its own steps, analysis has all ranks': intervals differ by a tenth in width at most."""
    draw = np.random.default_rng(3)
    for _ in range(20):
        tables = rows_of(100 * (1 + 0.05 * draw.standard_normal(1000)), ranks, draw, jitter_ms=1.0)
        steps = over_ranks(iter(tables), ranks)
        of_job = mean_interval(tables[0]["total_ns"].tolist()).half_percent
        assert mean_half_percent(steps.step_ns[steps.steady]) == pytest.approx(of_job, rel=0.1)


@pytest.mark.parametrize("ranks", [1, 2, 8, 64, 512])
@pytest.mark.parametrize("case", CASES)
def test_the_rate_of_a_run_is_that_of_the_time_that_passed(case: str, ranks: int) -> None:
    """From rows of all ranks, steps that end 2 % early or late among them: within 0.02 %, with one rank or with 512."""
    draw = np.random.default_rng(ranks)
    step_ms = CASES[case](draw, 1)[:, 0]
    mean_ns = mean_step_ns(over_ranks(iter(rows_of(step_ms, ranks, draw)), ranks))
    assert mean_ns is not None
    assert float(mean_ns) / MS == pytest.approx(step_ms.mean(), rel=2e-4)


RUNS: dict[str, Callable[[Draw, tuple[int, ...]], Floats]] = {
    "normal": lambda draw, shape: 100 + draw.standard_normal(shape),
    "exponential": lambda draw, shape: 100 + draw.exponential(size=shape),
    "one in five slow": lambda draw, shape: 100 + 0.6 * draw.standard_normal(shape) + 15.0 * (draw.random(shape) < 0.2),
}
"""How runs differ, %."""


@pytest.mark.parametrize("kind", RUNS)
def test_a_range_holds_the_truth_as_often_as_it_says(kind: str) -> None:
    """Of 2 to 5 runs, in each of 20,000 studies, within a per cent; so does that of the ratio of two medians."""
    draw = np.random.default_rng(3)
    truth = float(np.median(RUNS[kind](draw, (400_001,))))
    for n in (2, 3, 4, 5):
        a, b = RUNS[kind](draw, (2, 20_000, n))
        holds = (a.min(axis=1) <= truth) & (truth <= a.max(axis=1))
        assert float(holds.mean()) == pytest.approx(intervals.range_confidence(n), abs=0.01)
        overlap = (a.min(axis=1) <= b.max(axis=1)) & (b.min(axis=1) <= a.max(axis=1))
        assert float(overlap.mean()) == pytest.approx(effects.effect_confidence(n), abs=0.01)


@pytest.mark.parametrize("kind", RUNS)
def test_a_bar_that_claims_more_is_not_narrower(kind: str) -> None:
    """Six runs (96.9 %) have a wider one than five (93.75 %); efficiencies of five (99.2 %) than of six (95 %)."""
    draw = np.random.default_rng(4)
    widths = {n: coverage(RUNS[kind](draw, (STUDIES, n)), 100)[1] for n in (5, 6)}
    assert widths[6] > widths[5]
    ratios = {n: [ratio(*RUNS[kind](draw, (2, n)).tolist()) for _ in range(200)] for n in (5, 6)}
    wide = {n: np.mean([found.high - found.low for found in each if found.high and found.low]) for n, each in ratios.items()}
    assert wide[5] > wide[6]


@pytest.mark.parametrize("runs", [6, 10])
def test_slow_runs_do_not_spoil_it(runs: int) -> None:
    """One run in five is 15 % slower: Student's t holds the median in less than 90 % of such studies of ten, this in 93 %."""
    draw = np.random.default_rng(runs)
    shapes = ((STUDIES, runs), (400_001,))
    effects = [0.6 * draw.standard_normal(shape) + 15.0 * (draw.random(shape) < 0.2) for shape in shapes]
    share, _ = coverage(effects[0], float(np.median(effects[1])))
    assert share >= 0.93


@pytest.mark.parametrize("runs", [6, 10])
@pytest.mark.parametrize("case", ["AR(1) 0", "AR(1) 0.9", "bursts", "stalls"])
def test_the_interval_of_an_efficiency_holds_the_truth(case: str, runs: int) -> None:
    """In at least 93 % of 400 studies: 8 GPUs at 700 against 1 at 100, both medians of runs, whatever tells runs apart."""
    means = run_means(case, 8, 2 * RATIOS, runs)
    effect = np.random.default_rng(7).standard_normal(means.shape)
    for percent in (0, 3):
        rates = means + percent * effect
        found = [
            efficiency_of_runs([7 * Fraction(rate) for rate in point], 8, [Fraction(rate) for rate in base], 1)
            for point, base in zip(rates[:RATIOS], rates[RATIOS:], strict=True)
        ]
        share = np.mean([each.low is not None and each.high is not None and each.low <= 7 / 8 <= each.high for each in found])
        print(f"{case}  run effect {percent} %  n {runs:2}  {100 * share:.1f} % of studies")
        assert share >= 0.93
