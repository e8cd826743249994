from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest

from hpcddp.core.preflight import (
    PreflightRecord,
    RankReadings,
    SlowReading,
    preflight_words,
    slow_hosts,
    slow_readings,
    usable_hosts,
)
from tests.fake_node import PLANTED, TYPICAL, clean, slowed


def of_nodes(*products: float) -> list[RankReadings]:
    """One rank a node, with these products of matrices."""
    return [RankReadings(rank=rank, host=f"r{rank}", matrix_flops_per_s=value) for rank, value in enumerate(products)]


def record(ranks: list[RankReadings], excluded: tuple[str, ...] = ()) -> PreflightRecord:
    facts: Any = {"job": "7", "unix_ns": 1, "took_s": 5.0, "device": "cuda", "excluded": excluded}
    return PreflightRecord(ranks=tuple(ranks), slow=slow_readings(ranks), **facts)


@pytest.mark.parametrize("seed", range(20))
def test_no_node_of_a_clean_set_is_named(seed: int) -> None:
    assert slow_readings(clean(seed)) == ()


@pytest.mark.parametrize("reading", TYPICAL)
@pytest.mark.parametrize("factor", PLANTED)
def test_each_planted_slow_node_is_named(reading: str, factor: float) -> None:
    for seed, nodes in enumerate((4, 5, 8, 16, 33)):
        planted = Random(seed).sample([f"r{node:03d}" for node in range(nodes)], 1 if nodes < 12 else 3)
        found = slow_readings(slowed(clean(seed, nodes), reading, factor, planted))
        assert ({slow.host for slow in found}, {slow.reading for slow in found}) == (set(planted), {reading})


def test_a_slow_rank_makes_its_node_slow() -> None:
    ranks = clean(3, nodes=8)
    ranks[9] = dataclasses.replace(ranks[9], matrix_flops_per_s=TYPICAL["matrix_flops_per_s"][0] * 0.7)
    (slow,) = slow_readings(ranks)
    assert (slow.host, slow.rank, slow.reading, slow.nodes) == ("r002", 9, "matrix_flops_per_s", 8)
    assert slow.below == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize(
    ("products", "slow"),
    [
        ((100, 100, 90), []),
        ((100, 100, 89.9), ["r2"]),
        ((1,), []),
        ((100, 85), []),  # of two nodes a tenth of the median is 18 % of the faster one
        ((100, 81), ["r1"]),
    ],
)
def test_nodes_that_are_more_than_ten_percent_below_the_median_are_slow(products: tuple[float, ...], slow: list[str]) -> None:
    assert slow_hosts(slow_readings(of_nodes(*products))) == slow


def test_readings_of_nothing_are_no_readings() -> None:
    ranks = [RankReadings(rank=0, host="a"), RankReadings(rank=1, host="b", memory_bytes_per_s=0.0)]
    assert slow_readings(ranks) == ()


def test_the_slowest_are_left_out_as_far_as_there_are_spares() -> None:
    ranks = of_nodes(100, 70, 100, 80, 101, 100, 99)
    slow = slow_readings(ranks)
    assert slow_hosts(slow) == ["r1", "r3"]
    assert usable_hosts(ranks, slow, 0) == ([f"r{node}" for node in range(7)], [])
    assert usable_hosts(ranks, slow, 1) == (["r0", "r2", "r3", "r4", "r5", "r6"], ["r1"])
    assert usable_hosts(ranks, slow, 3) == (["r0", "r2", "r4", "r5", "r6"], ["r1", "r3"])


def test_words() -> None:
    assert preflight_words(record(of_nodes(1))) == "1 node, with no other to compare"
    assert preflight_words(record(of_nodes(100, 99, 98))) == "3 nodes, none more than 10 % below the median"
    assert preflight_words(record(of_nodes(100, 70, 100, 80, 101), excluded=("r1",))) == (
        "5 nodes, slow: r1 (matrix product 30 % below the median; left out); r3 (matrix product 20 % below the median)"
    )
    assert SlowReading(host="a", reading="copy_bytes_per_s", value=1, rank=0, median=4, nodes=9).below == 0.75
