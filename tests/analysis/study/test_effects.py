"""Two groups of runs compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import judged_axes
from hpcddp.analysis.study.effects import CHANCE, Ratio, p_value, precision, ratio
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_run, write_runs, write_study

RUNS = st.lists(st.fractions(1, 1000, max_denominator=50), min_size=1, max_size=12)


def test_the_ratio_is_of_medians() -> None:
    """Medians 4 and 2; of three runs each the range is 3/5 to 9/1. One run against one has none, six and six an interval."""
    assert ratio([3.0, 9.0, 4.0], [2.0, 1.0, 5.0]) == Ratio(2.0, 3 / 5, 9.0, "range")
    assert ratio([3.0], [2.0]) == Ratio(1.5, None, None, None)
    six = [98.0, 99.0, 100.0, 101.0, 102.0, 103.0]
    found = ratio(six, [value / 2 for value in six])
    assert (found.ratio, found.kind) == (2.0, "95 %")
    assert 2 * 98 / 103 < (found.low or 0) < 2 < (found.high or 0) < 2 * 103 / 98
    assert ratio(six, six[1:]).kind == "range"
    assert ratio([Fraction(1, 3)] * 6, [Fraction(1, 3)] * 7) == Ratio(1.0, 1.0, 1.0, "95 %")


@pytest.mark.dear
@given(RUNS, RUNS, st.randoms())
@example([Fraction(1, 10)] * 6, [Fraction(3, 10)] * 6, Random(0))
def test_an_interval_holds_its_ratio_whatever_the_order_of_runs(a: list[Fraction], b: list[Fraction], shuffle: Random) -> None:
    """To the last bit: 0.1 / 0.3 is a little more in doubles than a third."""
    found = ratio(a, b)
    if found.low is not None and found.high is not None:
        assert found.low <= found.ratio <= found.high
    shuffle.shuffle(a)
    shuffle.shuffle(b)
    assert ratio(a, b) == found


@pytest.mark.parametrize("runs", [6, 10])
def test_the_interval_of_a_ratio_holds_the_truth(runs: int) -> None:
    """In at least 93 % of 300 studies in which runs of one group vary three times as much."""
    draw = np.random.default_rng(runs)
    studies = [(100 + draw.standard_normal(runs), 110 + 3 * draw.standard_normal(runs)) for _ in range(300)]
    found = [ratio(list(a), list(b)) for a, b in studies]
    assert sum((each.low or 0) <= 100 / 110 <= (each.high or 0) for each in found) >= 0.93 * 300


Floats = NDArray[np.float64]
Draw = np.random.Generator

STUDIES = 400
MORE_STUDIES = 4000


def normal(draw: Draw, shape: tuple[int, ...]) -> Floats:
    """Runs that differ by 1 %."""
    return np.asarray(1 + 0.01 * draw.standard_normal(shape))


KINDS: Mapping[str, Callable[[Draw, tuple[int, ...]], Floats]] = {
    "normal": normal,
    # most runs about as fast as they can be, few slower
    "skewed": lambda draw, shape: np.asarray(1 / (1 + 0.01 * draw.exponential(size=shape))),
    # one run in five 15 % slower, as on a shared cluster
    "slow runs": lambda draw, shape: normal(draw, shape) / (1 + 0.15 * (draw.random(shape) < 0.2)),
    "log-normal": lambda draw, shape: np.asarray(np.exp(0.03 * draw.standard_normal(shape))),
}


def wrongly_said(runs: str, values: int, each: int, studies: int) -> float:
    """Share of studies of a key that does nothing in which it is said to do something."""
    draw = np.random.default_rng(values + 10 * each)
    rates = 1000 * KINDS[runs](draw, (studies, values, each))
    found = [p_value(study.tolist()) for study in rates]
    share = sum(p is not None and p <= CHANCE for p in found) / studies
    print(f"{runs:9}  {values} values  {each:2} runs: {100 * share:.1f} % of studies")
    return share


def panel_of(rates: Floats, **others: int) -> AxisPanel:
    """Values 0, 1, ... with these runs each."""
    unknown: dict[str, Any] = {"also": "", "started_ns": (), "data_wait_share": None, "peak_memory_bytes": None}
    points = [{"samples_per_s": float(np.median(runs))} for runs in rates]
    values = tuple(
        AxisValue(value=i, text=str(i), point=points[i], rates=tuple(map(Fraction, runs)), **unknown)
        for i, runs in enumerate(rates)
    )
    return AxisPanel(nodes=1, gpus_per_node=1, device="cuda", others=others, values=values, base=0)


def one_key(rates: Floats) -> Axis:
    """Of an array by values and runs."""
    return Axis(key="a", name="a", joint=(), panels=(panel_of(1000 * rates),))


def two_keys(rates: Floats) -> list[Axis]:
    """Judged, of an array by values of the one, values of the other, and runs."""
    across = [(panel_of(row, b=i)) for i, row in enumerate(rates)]
    down = [(panel_of(row, a=i)) for i, row in enumerate(rates.transpose(1, 0, 2))]
    return judged_axes([Axis(key=name, name=name, joint=(), panels=tuple(of)) for name, of in (("a", across), ("b", down))])


@pytest.mark.parametrize("each", [3, 6])
@pytest.mark.parametrize("runs", KINDS)
def test_two_keys_that_do_nothing_are_judged_together(runs: str, each: int) -> None:
    """All their comparisons, and how one depends on the other: at most 5 % of studies say anything, but for chance."""
    draw, studies = np.random.default_rng(each), 200
    found = [two_keys(1000 * study) for study in KINDS[runs](draw, (studies, 2, 3, each))]
    named = [any(axis.interactions or any(panel.differs for panel in axis.panels) for axis in study) for study in found]
    assert sum(named) <= studies * 0.05 + 2 * (0.05 * 0.95 * studies) ** 0.5


@pytest.mark.parametrize("each", [3, 6, 10])
@pytest.mark.parametrize("runs", KINDS)
def test_intervals_of_many_values_hold_all_at_once(runs: str, each: int) -> None:
    """One value is twice as fast, so that an effect is claimed; of the others, in 93 % of studies no interval says that two of
    them differ."""
    draw, studies, wrong = np.random.default_rng(each), 150, 0
    for study in KINDS[runs](draw, (studies, 9, each)):
        study[0] *= 2
        (axis,) = judged_axes([one_key(study)])
        panel = axis.panels[0]
        assert panel.is_sure
        others = sorted(panel.values[1:], key=lambda value: float(np.mean(np.log(value.floats))))
        low = panel.compared(others[-1], others[0]).low
        wrong += low is not None and low > 1
    assert wrong <= 0.07 * studies


def test_no_interval_says_more_than_the_sentence() -> None:
    """Where no effect is claimed, each holds 1: of 400 studies some would not."""
    draw = np.random.default_rng(1)
    panels = [axis.panels[0] for study in normal(draw, (400, 4, 3)) for axis in judged_axes([one_key(study)])]
    unclaimed = [(panel, value) for panel in panels if not panel.differs for value in panel.values]
    assert all((found.low or 0) <= 1 <= (found.high or 0) for panel, value in unclaimed if (found := panel.against_base(value)))


@pytest.mark.parametrize("values", [2, 12])
def test_ten_percent_are_always_found(values: int) -> None:
    """Of six runs that differ by 1 %, whatever the number of values: by the pair, too."""
    draw = np.random.default_rng(values)
    for study in normal(draw, (50, values, 6)):
        study[-1] *= 1.1
        (axis,) = judged_axes([one_key(study)])
        low = axis.panels[0].compared(axis.panels[0].values[-1], axis.panels[0].values[0]).low
        assert axis.panels[0].is_sure
        assert low is not None
        assert low > 1


def held(runs: str, each: int, studies: int) -> float:
    """Share of studies in which the interval holds the ratio of true medians, of values as fast, or 1.02, 1.5, 4 times."""
    draw = np.random.default_rng(each)
    factors = np.array([1.0, 1.02, 1.5, 4.0])
    rates = 1000 * KINDS[runs](draw, (studies, 5, each))
    rates[:, 1:] *= factors[None, :, None]
    inside = [
        (found.low or 0) <= factor <= (found.high or 0)
        for study in rates
        for factor, value in zip(factors, study[1:], strict=True)
        for found in [ratio(value.tolist(), study[0].tolist())]
    ]
    print(f"{runs:9}  {each:2} runs: {100 * np.mean(inside):.1f} % of intervals")
    return float(np.mean(inside))


@pytest.mark.parametrize("each", [1, 2, 3, 6, 10])
@pytest.mark.parametrize("values", [2, 5, 12])
@pytest.mark.parametrize("runs", KINDS)
def test_what_does_nothing_is_said_to_do_nothing(runs: str, values: int, each: int) -> None:
    """In 95 % of studies and more; the bound has two standard errors of so many studies on top."""
    assert wrongly_said(runs, values, each, STUDIES) <= 0.05 + 2 * (0.05 * 0.95 / STUDIES) ** 0.5


@pytest.mark.soak
@pytest.mark.parametrize("each", [3, 4, 5, 6, 8, 10])
@pytest.mark.parametrize("values", [2, 3, 5, 7, 12])
@pytest.mark.parametrize("runs", KINDS)
def test_what_does_nothing_is_said_to_do_nothing_in_more_studies(runs: str, values: int, each: int) -> None:
    assert wrongly_said(runs, values, each, MORE_STUDIES) <= 0.05


@pytest.mark.parametrize("each", [6, 10])
@pytest.mark.parametrize("runs", KINDS)
def test_the_interval_of_an_effect_holds_the_truth(runs: str, each: int) -> None:
    """In 93 % and more: of values that do nothing, and of such that are 1.02, 1.5 and 4 times as fast."""
    assert held(runs, each, 150) >= 0.93


@pytest.mark.soak
@pytest.mark.parametrize("each", [6, 8, 10])
@pytest.mark.parametrize("runs", KINDS)
def test_the_interval_of_an_effect_holds_the_truth_in_more_studies(runs: str, each: int) -> None:
    assert held(runs, each, 2000) >= 0.93


@pytest.mark.parametrize(("each", "factor"), [(3, 1.06), (6, 1.03), (10, 1.02)])
def test_an_effect_is_found(each: int, factor: float) -> None:
    """In nine of ten studies, of runs that differ by 1 %: the fewer runs, the larger it must be."""
    draw = np.random.default_rng(each)
    rates = normal(draw, (STUDIES, 2, each))
    rates[:, 1] *= factor
    found = [p_value(study.tolist()) for study in rates]
    assert sum(p is not None and p <= CHANCE for p in found) >= 0.9 * STUDIES


ONE, TWO = point(1, 1), point(1, 2)


def test_precision_is_half_the_interval_of_the_median(tmp_path: Path) -> None:
    """Six runs of 98 to 103 ms have their whole range; two runs have no interval."""
    study = write_study(tmp_path / "s", [ONE, TWO], repeat=2)
    write_runs(study, ONE, [step * MS for step in (98, 99, 100, 101, 102, 103)])
    write_runs(study, TWO, [MS, MS])
    found = precision(study)
    runs, half_percent = found[ONE.label]
    assert runs == 6
    assert half_percent == pytest.approx(50 * (1 / 98 - 1 / 103) / ((1 / 100 + 1 / 101) / 2))
    assert found[TWO.label] == (2, None)


def test_points_whose_runs_are_not_over_or_do_not_count_are_left_out(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [ONE, TWO], repeat=2)
    write_run(study, ONE, Recorded(step_ns=MS))
    write_runs(study, TWO, [MS, MS])
    write_run(study, TWO, Recorded(step_ns=MS, gates=FAILED, job="300"), run=2)
    assert precision(study) == {}
    with pytest.raises(HpcddpError, match="none: no study there"):
        precision(Study(tmp_path / "none"))


def test_runs_of_another_environment_are_not_pooled(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", [ONE], repeat=2)
    for run in range(1, 8):
        write_run(study, ONE, Recorded(step_ns=MS, env_id="new" if run > 6 else "old"), run)
    assert precision(study) == {ONE.label: (1, None)}
