"""Readings of preflight on nodes that are not there: clean ones, and the same with slow nodes planted.

GPUs of one type in one cluster differ by 8 % on average (arXiv:2208.11035): products are drawn evenly from a range of that width.
Nobody has published the spread of the other readings; 6 % stands for it.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from hpcddp.core.preflight import RankReadings

TYPICAL = {
    "matrix_flops_per_s": (90e12, 0.08),
    "memory_bytes_per_s": (790e9, 0.06),
    "copy_bytes_per_s": (60e9, 0.06),
    "node_bytes_per_s": (130e9, 0.06),
    "neighbour_bytes_per_s": (21e9, 0.06),
}
"""Reading -> its middle, and how far apart nodes are, as a share of it."""

PLANTED = (0.875, 0.85, 0.8, 0.67)
"""Of the median: one network adapter of eight lost (12.5 %), and up to the outliers of the source, 1.5 times slower."""


def clean(seed: int, nodes: int | None = None, ranks_per_node: int = 4) -> list[RankReadings]:
    """Of so many sound nodes; without a number from 2 to 64, some sets without copies or without all-reduces in a node."""
    draw = Random(seed)
    count = nodes or draw.choice([2, 3, 4, 5, 8, 16, 33, 64])
    missing = () if nodes else draw.choice([(), ("copy_bytes_per_s",), ("node_bytes_per_s",)])
    found = []
    for node in range(count):
        shared = {name: _drawn(draw, name) for name in ("node_bytes_per_s", "neighbour_bytes_per_s")}
        for local in range(ranks_per_node):
            values: dict[str, Any] = {name: shared.get(name) or _drawn(draw, name) for name in TYPICAL if name not in missing}
            found.append(RankReadings(rank=node * ranks_per_node + local, host=f"r{node:03d}", **values))
    return found


def _drawn(draw: Random, name: str) -> float:
    middle, width = TYPICAL[name]
    return middle * (1 + draw.uniform(-width, width) / 2)


def slowed(readings: Sequence[RankReadings], reading: str, factor: float, hosts: Collection[str]) -> list[RankReadings]:
    """The same, these hosts at that share of the median over nodes."""
    by_host: dict[str, float] = {}
    for each in readings:
        value = getattr(each, reading)
        by_host[each.host] = min(value, by_host.get(each.host, value))
    slow: dict[str, Any] = {reading: factor * statistics.median(by_host.values())}
    return [dataclasses.replace(each, **slow) if each.host in hosts else each for each in readings]
