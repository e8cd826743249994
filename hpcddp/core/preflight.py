"""What preflight measured on each node before the runs, and which nodes are slower than the others.

A node is as fast as its slowest rank, since the others wait for that one. It is slow where it is more than SLOW below the median
of all nodes. Of one node nothing can be said. Of two the median lies between them, so that the slower one must be 18 % below the
other. From three on one node that is out of line moves it little.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, Positive
from hpcddp.core.text import count

Reading = Literal["matrix_flops_per_s", "memory_bytes_per_s", "copy_bytes_per_s", "node_bytes_per_s", "neighbour_bytes_per_s"]

READINGS: dict[Reading, str] = {
    "matrix_flops_per_s": "matrix product",
    "memory_bytes_per_s": "memory bandwidth",
    "copy_bytes_per_s": "copy from host to GPU",
    "node_bytes_per_s": "all-reduce in the node",
    "neighbour_bytes_per_s": "all-reduce with a neighbour",
}
"""Field of RankReadings -> its name in words."""


@dataclass(frozen=True, kw_only=True)
class RankReadings:
    """Of one rank, more is better; None: nothing to measure there (one rank, one node, no GPU), or it could not be measured."""

    rank: Count
    host: str
    matrix_flops_per_s: NonNegative | None = None
    memory_bytes_per_s: NonNegative | None = None
    """Read and written: of a copy, both count."""
    copy_bytes_per_s: NonNegative | None = None
    node_bytes_per_s: NonNegative | None = None
    """Bus bandwidth, as nccl-tests defines it."""
    neighbour_bytes_per_s: NonNegative | None = None
    """The same with the node before or behind it, whichever is faster: a slow neighbour is not this node's fault."""
    problems: tuple[str, ...] = ()
    """What could not be measured, in sentences."""


@dataclass(frozen=True, kw_only=True)
class SlowReading:
    """A node that is slower than the others in one of READINGS."""

    host: str
    reading: Reading
    value: NonNegative
    """Of its slowest rank."""
    rank: Count
    median: NonNegative
    """Over all nodes."""
    nodes: Positive

    @property
    def below(self) -> float:
        """By which share it is below the median."""
        return 1 - self.value / self.median if self.median else 0.0


@dataclass(frozen=True, kw_only=True)
class PreflightRecord:
    """preflight/JOB.RESTART.json"""

    schema: int = SCHEMA
    job: str
    restart: Count = 0
    unix_ns: Count
    """When it was over."""
    took_s: NonNegative
    """Since the ranks had met."""
    device: str
    """`cuda` or `cpu`."""
    ranks: tuple[RankReadings, ...]
    slow: tuple[SlowReading, ...]
    excluded: tuple[str, ...] = ()
    """Hosts that the job's runs stay off."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """In the order of ranks."""
        return tuple(dict.fromkeys(each.host for each in self.ranks))


SLOW = 0.10
"""GPUs of one type in one cluster differ by 8 % on average, by heat and manufacture, and outliers are up to 1.5 times slower than
the median (Sinha et al., SC22, arXiv:2208.11035). One network adapter of eight that is lost costs 12.5 %."""


def slow_readings(ranks: Sequence[RankReadings]) -> tuple[SlowReading, ...]:
    """Of each reading the nodes that are slow in it, the slowest ones first."""
    found = [slow for reading in READINGS for slow in _slow_in(reading, ranks)]
    return tuple(sorted(found, key=lambda slow: -slow.below))


def slow_hosts(slow: Sequence[SlowReading]) -> list[str]:
    """Each host once, the slowest first."""
    return list(dict.fromkeys(each.host for each in slow))


def usable_hosts(ranks: Sequence[RankReadings], slow: Sequence[SlowReading], spare: int) -> tuple[list[str], list[str]]:
    """The hosts that runs shall use, in their order, and those left out: as many of the slowest as there are spare ones."""
    left_out = slow_hosts(slow)[:spare]
    hosts = dict.fromkeys(each.host for each in ranks)
    return [host for host in hosts if host not in left_out], left_out


def node_values(reading: Reading, ranks: Sequence[RankReadings]) -> dict[str, tuple[float, int]]:
    """Host -> the reading of its slowest rank, and that rank; without hosts of which it is not known."""
    by_host: dict[str, tuple[float, int]] = {}
    for each in ranks:
        value: float | None = getattr(each, reading)
        if value is not None:
            by_host[each.host] = min((value, each.rank), by_host.get(each.host, (value, each.rank)))
    return by_host


def _slow_in(reading: Reading, ranks: Sequence[RankReadings]) -> Iterator[SlowReading]:
    by_host = node_values(reading, ranks)
    median = statistics.median(value for value, _ in by_host.values()) if len(by_host) > 1 else 0.0
    for host, (value, rank) in by_host.items():
        if value < (1 - SLOW) * median:
            yield SlowReading(host=host, reading=reading, value=value, rank=rank, median=median, nodes=len(by_host))


def preflight_words(record: PreflightRecord) -> str:
    """`4 nodes, r003 slow: matrix product 14 % below the median; left out`; one line, and why nothing is said of one node."""
    nodes = count(len(record.hosts), "node")
    if len(record.hosts) == 1:
        return f"{nodes}, with no other to compare"
    if not record.slow:
        return f"{nodes}, none more than {SLOW:.0%} below the median".replace("%", " %")
    return f"{nodes}, slow: {'; '.join(slow_words(record.slow, record.excluded))}"


def slow_words(slow: Sequence[SlowReading], excluded: Sequence[str] = ()) -> list[str]:
    """Of each host a phrase, the slowest first: by how much it is below the median, in each of the readings."""
    return [
        f"{host} ({', '.join(below_words(each) for each in slow if each.host == host)}{'; left out' if host in excluded else ''})"
        for host in slow_hosts(slow)
    ]


def below_words(slow: SlowReading) -> str:
    """`matrix product 14 % below the median`"""
    return f"{READINGS[slow.reading]} {100 * slow.below:.0f} % below the median"
