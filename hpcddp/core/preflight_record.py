"""What preflight measured on each node before the runs, and which nodes are slow, as frozen dataclasses.

For Python 3.10, without libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, Positive

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
