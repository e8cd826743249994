"""comm.json: times of collectives by operation and size, as the benchmark of a job's own ranks found them.

Standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.core.bandwidth import LinkFit
from hpcddp.core.schema import Count, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class CommSize:
    """One message size; times are of one call, over batches of `calls`."""

    bytes: Positive
    calls: Positive
    time_s: NonNegative
    """The median over batches."""
    time_min_s: NonNegative
    time_max_s: NonNegative
    algbw_bytes_per_s: NonNegative | None
    busbw_bytes_per_s: NonNegative | None
    """Algorithm and bus bandwidth as nccl-tests defines them."""
    correct: bool | None
    """Whether all ranks held what they should after a call, bit for bit."""
    wrong_rank: Count | None = None


@dataclass(frozen=True, kw_only=True)
class SkippedSize:
    """A message size that was not timed, and why."""

    bytes: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class CommOperation:
    """One operation."""

    sizes: tuple[CommSize, ...]
    left_out: tuple[SkippedSize, ...] = ()
    not_supported: str | None
    """The backend's words, where it lacks the operation."""
    fit: LinkFit


@dataclass(frozen=True, kw_only=True)
class CommBench:
    """What all ranks of a benchmark found, alike."""

    backend: str
    ranks: int | None = None
    nodes: int | None = None
    dtype: str | None = None
    repetitions: int | None = None
    send_recv_ranks: tuple[int, ...] = ()
    ops: Mapping[str, CommOperation]


@dataclass(frozen=True, kw_only=True)
class CommRecord(CommBench):
    """comm.json"""

    schema: int
    point: str | None = None
    run: int | None = None
