"""Who is waited for, from step rows alone: by hand, and in simulated runs of 2 to 512 ranks with jitter and dependent noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import RECORDED, over_ranks
from hpcddp.analysis.runs.slow_ranks import Unevenness, unevenness
from hpcddp.analysis.verdicts.input import MOST_WAITING
from hpcddp.analysis.verdicts.straggler import SLOWER, slow_ranks

Floats = NDArray[np.float64]
MS = 1_000_000
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


def alike(ranks: int, count: int = 100, backward_ms: float = 60) -> dict[str, Floats]:
    """90 ms by itself, on every rank and step."""
    times = {"data_wait": 10.0, "forward": 80 - backward_ms, "backward": backward_ms}
    return {part: np.full((ranks, count), ms * MS) for part, ms in times.items()}


def test_a_rank_that_computes_for_longer_is_named_with_what_it_costs() -> None:
    """By hand: rank 2 of four takes 10 ms more in backward; the other three wait 10 ms each, 7.5 in the mean."""
    parts = alike(4)
    parts["backward"][2] += 10 * MS
    found = run_of(parts)
    assert found is not None
    assert found.over_ns == (0, 0, 10 * MS, 0)
    assert found.part_over_ns["backward"] == (0, 0, 10 * MS, 0)
    assert (found.waiting_ns, found.often_ns) == (7.5 * MS, 7.5 * MS)
    assert found.data_ns == 10 * MS


def test_of_two_ranks_the_faster_one_is_the_measure() -> None:
    """There is no majority."""
    parts = alike(2)
    parts["forward"][0] += 10 * MS
    found = run_of(parts)
    assert found is not None
    assert found.over_ns == (10 * MS, 0)


def test_what_data_costs_is_what_the_slowest_waits() -> None:
    """One rank of four waits 60 ms for each batch, the others 10: without any waiting a step would be 60 ms shorter."""
    parts = alike(4)
    parts["data_wait"][1] = 60 * MS
    found = run_of(parts)
    assert found is not None
    assert found.data_ns == 60 * MS
    assert found.part_over_ns["data_wait"] == (0, 50 * MS, 0, 0)


def test_others_wait_for_rank_0_where_it_broadcasts_its_buffers() -> None:
    """Its batch is 30 ms late; the others are held up by that in forward, so that all need as long by themselves."""
    parts = alike(4)
    parts["data_wait"][0] += 30 * MS
    parts["forward"][1:] += 30 * MS
    found = run_of(parts)
    assert found is not None
    assert found.over_ns == (30 * MS, 0, 0, 0)


def test_a_rank_that_waits_because_it_is_fast_is_not_late() -> None:
    """All loaders deliver as slowly; the rank that computes faster waits longer for its batch."""
    parts = alike(2)
    parts["backward"][0] -= 20 * MS
    parts["data_wait"][0] += 20 * MS
    found = run_of(parts)
    assert found is not None
    assert found.over_ns == (0, 0)


def test_slow_for_half_the_run_is_not_slow() -> None:
    """It is over, or has just begun: the ranks took turns."""
    parts = alike(2)
    parts["backward"][0, :50] += 20 * MS
    parts["backward"][1, 50:] += 20 * MS
    found = run_of(parts)
    assert found is not None
    assert max(found.over_ns) == 0
    assert found.often_ns == 10 * MS


@pytest.mark.parametrize(("ranks", "count"), [(1, 100), (2, 19)])
def test_where_nobody_is_waited_for_or_steps_are_few_nothing_is_known(ranks: int, count: int) -> None:
    """One rank; 19 steps."""
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
    """2 to 512 ranks, noise up to 3 %, jitter up to 1.5 % on each rank, dependent or not."""
    draw, how = of_seed(seed)
    assert found_in(run_of(noisy(draw, **how), hosts=max(1, how["ranks"] // 4))) == ([], False)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("part", ["forward", "data_wait"])
def test_a_rank_slower_by_a_tenth_is_always_named(seed: int, part: str) -> None:
    """Whatever its part; alone, or with all of its host."""
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
    """In every step another one, drawn at random, needs half a step more."""
    draw, how = of_seed(seed)
    parts = noisy(draw, **how)
    count = parts["backward"].shape[1]
    parts["backward"][draw.integers(how["ranks"], size=count), np.arange(count)] += 49 * MS
    names, uneven = found_in(run_of(parts))
    assert uneven
    assert how["ranks"] == 2 or names == []


def test_thresholds_have_room() -> None:
    """Twice what sound runs have, half of what was planted."""
    assert SLOWER <= 0.1 / 2 < MOST_WAITING
