"""Who is waited for, from step rows alone: by hand, and in simulated runs of 2 to 512 ranks with jitter and dependent noise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from hpcddp.analysis.figures.distribution import stand_out
from hpcddp.analysis.records.steps import RECORDED, RunSteps, over_ranks
from hpcddp.analysis.runs.slow_ranks import (
    LEAST_STEPS,
    MEASURED_IN,
    MOST_COLUMNS,
    MOST_RANKS,
    RankMap,
    Unevenness,
    rank_map,
    unevenness,
)
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.detail import DetailTables
from hpcddp.analysis.verdicts.findings import find
from hpcddp.analysis.verdicts.input import MOST_WAITING
from hpcddp.analysis.verdicts.slow_ranks import slow_ranks
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

Floats = NDArray[np.float64]
EXCHANGE_NS = 8 * MS
"""What all ranks take for the exchange once the last one is ready."""


def run_of(parts: Mapping[str, Floats], hosts: int = 1) -> Unevenness | None:
    """(ranks, steps) of each part that is a rank's own, in ns; ranks wait for the slowest of each step, then exchange."""
    own: Floats = np.sum(list(parts.values()), axis=0)
    exposed = own.max(axis=0) - own + EXCHANGE_NS
    ranks, count = own.shape
    tables = [
        {
            **{"step": np.arange(count), "flags": np.zeros(count, np.int64)},
            **{f"{part}_ns": np.full(count, np.nan) for part in RECORDED},
            **{f"{part}_ns": values[rank] for part, values in parts.items()},
            **{"comm_exposed_ns": exposed[rank], "total_ns": own[rank] + exposed[rank]},
        }
        for rank in range(ranks)
    ]
    return unevenness(over_ranks(tables, ranks), [f"r{rank * hosts // ranks:03d}" for rank in range(ranks)])


def known(parts: Mapping[str, Floats]) -> Unevenness:
    found = run_of(parts)
    assert found is not None
    return found


def alike(ranks: int, count: int = 100, backward_ms: float = 60) -> dict[str, Floats]:
    """90 ms by itself, on every rank and step."""
    times = {"data_wait": 10.0, "forward": 80 - backward_ms, "backward": backward_ms}
    return {part: np.full((ranks, count), ms * MS) for part, ms in times.items()}


def test_a_rank_that_computes_for_longer_is_named_with_what_it_costs() -> None:
    """By hand: rank 2 of four takes 10 ms more in backward; the other three wait 10 ms each, 7.5 in the mean."""
    parts = alike(4)
    parts["backward"][2] += 10 * MS
    found = known(parts)
    assert found.over_ns == (0, 0, 10 * MS, 0)
    assert found.part_over_ns["backward"] == (0, 0, 10 * MS, 0)
    assert (found.waiting_ns, found.often_ns) == (7.5 * MS, 7.5 * MS)
    assert found.data_ns == 10 * MS


def test_what_data_costs_is_what_the_slowest_waits() -> None:
    """One rank of four waits 60 ms for each batch, the others 10: without any waiting a step would be 60 ms shorter."""
    parts = alike(4)
    parts["data_wait"][1] = 60 * MS
    found = known(parts)
    assert found.data_ns == 60 * MS
    assert found.part_over_ns["data_wait"] == (0, 50 * MS, 0, 0)


def test_others_wait_for_rank_0_where_it_broadcasts_its_buffers() -> None:
    """Its batch is 30 ms late; the others are held up by that in forward, so that all need as long by themselves."""
    parts = alike(4)
    parts["data_wait"][0] += 30 * MS
    parts["forward"][1:] += 30 * MS
    found = known(parts)
    assert found.over_ns == (30 * MS, 0, 0, 0)


def test_a_rank_that_waits_because_it_is_fast_is_not_late() -> None:
    """All loaders deliver as slowly; the rank that computes faster waits longer for its batch."""
    parts = alike(2)
    parts["backward"][0] -= 20 * MS
    parts["data_wait"][0] += 20 * MS
    found = known(parts)
    assert found.over_ns == (0, 0)


def test_slow_for_half_the_run_is_not_slow() -> None:
    """It is over, or has just begun: the ranks took turns."""
    parts = alike(2)
    parts["backward"][0, :50] += 20 * MS
    parts["backward"][1, 50:] += 20 * MS
    found = known(parts)
    assert max(found.over_ns) == 0
    assert found.often_ns == 10 * MS


@pytest.mark.parametrize(("ranks", "count"), [(1, 100), (2, 19)])
def test_where_nobody_is_waited_for_or_steps_are_few_nothing_is_known(ranks: int, count: int) -> None:
    assert run_of(alike(ranks, count)) is None


def noisy(draw: np.random.Generator, ranks: int, noise: float, jitter: float, phi: float) -> dict[str, Floats]:
    """A sound run of 200 steps, AR(1) by `noise` on all ranks, by `jitter` on each its own; ranks differ by 1 % for good."""
    count = 200
    common, own = (ar_1(draw, phi, shape) for shape in ((1, count), (ranks, count)))
    factor = (1 + noise * common + jitter * own) * (1 + 0.01 * draw.uniform(-1, 1, (ranks, 1)))
    return {part: values * factor for part, values in alike(ranks, count).items()}


def ar_1(draw: np.random.Generator, phi: float, shape: tuple[int, int]) -> Floats:
    """Series of standard deviation 1, one a row."""
    values: Floats = draw.normal(size=shape) * (1 - phi**2) ** 0.5
    for step in range(1, shape[1]):
        values[:, step] += phi * values[:, step - 1]
    return values


def of_seed(seed: int) -> tuple[np.random.Generator, dict[str, Any]]:
    draw = np.random.default_rng(seed)
    ranks = (2, 4, 8, 16, 64, 512)[seed % 6]
    return draw, {
        "ranks": ranks,
        "noise": draw.uniform(0.005, 0.03),
        "jitter": draw.uniform(0, 0.015),
        "phi": draw.choice([0, 0.5, 0.9]),
    }


def found_in(found: Unevenness | None) -> tuple[list[str], bool]:
    """Who is named, and whether ranks take turns, at a step of 98 ms."""
    assert found is not None
    return [who.name for who in slow_ranks(found, 98 * MS)], found.often_ns > MOST_WAITING * 98 * MS


@pytest.mark.parametrize("seed", range(50))
def test_sound_runs_name_nobody(seed: int) -> None:
    draw, how = of_seed(seed)
    assert found_in(run_of(noisy(draw, **how), hosts=max(1, how["ranks"] // 4))) == ([], False)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("part", ["forward", "data_wait"])
def test_a_rank_slower_by_a_tenth_is_always_named(seed: int, part: str) -> None:
    draw, how = of_seed(seed)
    ranks, hosts = how["ranks"], max(1, how["ranks"] // 4)
    is_host = hosts > 1 and seed % 2 == 1
    slow = int(draw.integers(ranks))
    mine = [rank for rank in range(ranks) if rank * hosts // ranks == slow * hosts // ranks] if is_host else [slow]
    parts = noisy(draw, **how)
    parts[part][mine] += 0.1 * 98 * MS
    host = f"r{slow * hosts // ranks:03d}"
    assert found_in(run_of(parts, hosts))[0] == [host if is_host else f"rank {slow} on {host}"]


@pytest.mark.parametrize("seed", range(30))
def test_ranks_that_take_turns_are_told_and_none_is_named(seed: int) -> None:
    draw, how = of_seed(seed)
    parts = noisy(draw, **how)
    count = parts["backward"].shape[1]
    parts["backward"][draw.integers(how["ranks"], size=count), np.arange(count)] += 49 * MS
    names, uneven = found_in(run_of(parts))
    assert uneven
    assert how["ranks"] == 2 or names == []


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
    draw = np.random.default_rng(1)
    own = draw.triangular(50, 5000, 5000, (5, 100)).round()
    assert mapped(run_steps(own * scale, 100 * scale), ["a"] * 5) == mapped(run_steps(own), ["a"] * 5)


@pytest.mark.parametrize("steps", [LEAST_STEPS, 299, 1000, 20_001])
def test_columns_are_few_and_full(steps: int) -> None:
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
    assert rank_map(steps, ["a"] * len(steps.own_ns)) is None


def detail_of(folder: Path, ranks: int, of_rank: Mapping[int, Mapping[str, float]]) -> DetailTables:
    """Of a study of one run, in which most ranks compute for half of each step."""
    where = point(1, ranks, comm="on")
    study = write_study(folder / "s", [where])
    shares = {"backward": 0.5, "comm_exposed": 0.25}
    write_run(study, where, Recorded(step_ns=100 * MS, steps=40, shares=shares, shares_of_rank=of_rank))
    return find(load_study(study)).detail


def test_a_rank_that_is_slow_now_and_then_is_not_named(tmp_path: Path) -> None:
    """Rank 1 takes 20 % longer in half of the columns, rank 2 in all: that one stands out."""
    slow = {1: {"backward": 0.6, "comm_exposed": 0.15}, 2: {"backward": 0.7, "comm_exposed": 0.05}}
    cells = detail_of(tmp_path, 4, slow).ranks
    half = (cells["row"] == 1) & (cells["first_step"] >= 20)
    assert [each.block for each in stand_out(cells.assign(over_percent=cells["over_percent"].mask(half, -1.0)))] == ["r002"]


def test_ranks_that_are_alike_have_no_map(tmp_path: Path) -> None:
    detail = detail_of(tmp_path, 2, {1: {"backward": 0.505, "comm_exposed": 0.245}})
    assert len(detail.ranks) == 0
    assert len(detail.parts) > 0


def test_waiting_is_not_own_time(tmp_path: Path) -> None:
    """Steps are equally long on all ranks; the one that waits least is the slow one, and it is named."""
    (slow,) = stand_out(detail_of(tmp_path, 4, {3: {"backward": 0.75, "comm_exposed": 0.0}}).ranks)
    assert (slow.rank, slow.block) == (None, "r003")
    assert slow.percent == pytest.approx(25.0)
