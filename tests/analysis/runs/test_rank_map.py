"""Who is slower than the others, and when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from hpcddp.analysis.figures.distribution import stand_out
from hpcddp.analysis.records.steps import RunSteps
from hpcddp.analysis.runs.slow_ranks import LEAST_STEPS, MEASURED_IN, MOST_COLUMNS, MOST_RANKS, RankMap, rank_map
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study


def run_steps(own_ns: ArrayLike, step_ns: float = 100.0, warmup: int = 0) -> RunSteps:
    """Ranks' own times; every step lasts as long."""
    own = np.array(own_ns)
    ranks, count = own.shape
    lasted = np.full(count, step_ns)
    steady, window = np.arange(count) >= warmup, np.full(ranks, lasted.sum())
    return RunSteps(steady, ranks * lasted, lasted, {}, own, np.arange(count), window, lasted, {})


def mapped(steps: RunSteps, hosts: list[str]) -> RankMap:
    found = rank_map(steps, hosts)
    assert found is not None
    return found


def test_a_rank_is_compared_with_the_median_rank() -> None:
    """Own times 80, 80 and 90 of steps of 100: 10 % more, in all four columns; the warm-up is left out."""
    steps = run_steps([[999.0] + [own] * 20 for own in (80.0, 80.0, 90.0)], warmup=1)
    found = mapped(steps, ["a", "a", "b"])
    assert found == RankMap(("a", "a", "b"), (0, 1, 2), (0, 5, 10, 15, 20), ((0.0,) * 4, (0.0,) * 4, (10.0,) * 4))


def test_of_two_in_the_middle_the_faster_one_is_the_measure() -> None:
    """Half of the ranks slow: those are slow, not the others fast."""
    assert mapped(run_steps([[80.0] * 20, [90.0] * 20]), ["a", "b"]).over_percent == ((0.0,) * 4, (10.0,) * 4)


def test_it_shows_when() -> None:
    """Slow in the last quarter only; one odd step in five does not move a column's median."""
    slow = [80.0] * 15 + [95.0] * 5
    slow[2] = 500.0
    assert mapped(run_steps([[80.0] * 20, [80.0] * 20, slow]), ["a"] * 3).over_percent[2] == (0.0, 0.0, 0.0, 15.0)


@pytest.mark.parametrize("scale", [0.01, 1.0, 4e5, 1e10], ids=str)
def test_it_is_the_same_however_long_steps_are(scale: float) -> None:
    """Whether times are whole numbers, and fit into 32 bits or not."""
    draw = np.random.default_rng(1)
    own = draw.triangular(50, 5000, 5000, (5, 100)).round()
    assert mapped(run_steps(own * scale, 100 * scale), ["a"] * 5) == mapped(run_steps(own), ["a"] * 5)


@pytest.mark.parametrize("steps", [LEAST_STEPS, 299, 1000, 20_001])
def test_columns_are_few_and_full(steps: int) -> None:
    """At most MOST_COLUMNS, of at least MEASURED_IN steps each, none left out."""
    found = mapped(run_steps([[1.0] * steps] * 2), ["a", "b"])
    widths = np.diff(found.steps)
    assert len(found.over_percent[0]) == len(widths) <= MOST_COLUMNS
    assert widths.min() >= MEASURED_IN
    assert (found.steps[0], found.steps[-1]) == (0, steps)


def test_many_ranks_are_shown_by_host() -> None:
    """The slowest of each: one slow rank among eight of its host is not averaged away."""
    hosts = [f"r{rank // 8:03d}" for rank in range(MOST_RANKS + 8)]
    own = [[80.0] * 20 for _ in hosts]
    own[13] = [90.0] * 20
    found = mapped(run_steps(own), hosts)
    assert (found.ranks, found.hosts) == (None, tuple(dict.fromkeys(hosts)))
    assert [row[0] for row in found.over_percent] == [0.0, 10.0, *[0.0] * 7]


@pytest.mark.parametrize(
    "steps",
    [run_steps([[1.0] * 20]), run_steps([[1.0] * (LEAST_STEPS - 1)] * 2), run_steps([[np.nan] * 20, [1.0] * 20])],
    ids=["one rank", "few steps", "not measured"],
)
def test_there_is_none_where_it_would_say_nothing(steps: RunSteps) -> None:
    """One rank has nobody to be compared with."""
    assert rank_map(steps, ["a"] * len(steps.own_ns)) is None


def test_a_rank_that_is_slow_now_and_then_is_not_named(tmp_path: Path) -> None:
    """Rank 1 takes 20 % longer in half of the columns, rank 2 in all: that one stands out."""
    where = point(1, 4, comm="on")
    study = write_study(tmp_path / "s", [where])
    slow = {1: {"backward": 0.6, "comm_exposed": 0.1}, 2: {"backward": 0.7, "comm_exposed": 0.0}}
    write_run(
        study, where, Recorded(step_ns=100 * MS, steps=40, shares={"backward": 0.5, "comm_exposed": 0.2}, shares_of_rank=slow)
    )
    cells = find(load_study(study)).detail.ranks
    half = (cells["row"] == 1) & (cells["first_step"] >= 20)
    assert [each.block for each in stand_out(cells.assign(over_percent=cells["over_percent"].mask(half, -1.0)))] == ["r002"]


def test_ranks_that_are_alike_have_no_map(tmp_path: Path) -> None:
    """Half a per cent apart: there is nothing to see."""
    where = point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [where])
    other = {1: {"backward": 0.505, "comm_exposed": 0.195}}
    write_run(
        study, where, Recorded(step_ns=100 * MS, steps=40, shares={"backward": 0.5, "comm_exposed": 0.2}, shares_of_rank=other)
    )
    detail = find(load_study(study)).detail
    assert len(detail.ranks) == 0
    assert len(detail.parts) > 0


def test_waiting_is_not_own_time(tmp_path: Path) -> None:
    """Steps are equally long on all ranks; the one that waits least is the slow one, and it is named."""
    where = point(2, 2, comm="on")
    study = write_study(tmp_path / "s", [where])
    slow_rank = {3: {"backward": 0.75, "comm_exposed": 0.05}}
    shares = {"backward": 0.5, "comm_exposed": 0.25}
    write_run(study, where, Recorded(step_ns=100 * MS, steps=40, shares=shares, shares_of_rank=slow_rank))
    (slow,) = stand_out(find(load_study(study)).detail.ranks)
    assert (slow.rank, slow.block) == (None, "r003")
    assert slow.percent == pytest.approx(20.0)
