"""comm.json: times of collectives by operation and size, and what they say of a link.

Bandwidth is as nccl-tests defines it: NVIDIA/nccl-tests doc/PERFORMANCE.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpcddp.core.schema import Count, NonNegative, Positive

LATENCY_UP_TO_BYTES = 4 * 2**10
"""Sizes whose time is all latency."""

BANDWIDTH_FROM_BYTES = 4 * 2**20
"""Sizes whose time is nearly all transfer, and that a token bucket's first burst hardly shortens."""


DISTURBED_FACTOR = 1.5
"""A message that took so many times as long as a larger one was disturbed. NCCL and gloo change their algorithm with the size,
and just before such a change a smaller message may be the slower one, but not by half."""

ITERATIONS = 10
"""Each leaves some per cent of the error of the one before: latency is that much of the time of 4 MiB, and transfer of that of
4 KiB."""


def bus_share(op: str, ranks: int) -> float:
    """Bytes that pass the busiest link per byte of the message: algorithm bandwidth times this is bus bandwidth. 0 for an
    all-reduce, reduce-scatter or all-gather of one rank: nothing passes.
    """
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in ("reduce_scatter", "all_gather"):
        return (ranks - 1) / ranks
    return 1.0


@dataclass(frozen=True, kw_only=True)
class LinkFit:
    """A call takes about latency_s + bytes / bandwidth_bytes_per_s; None where no size of message shows it."""

    latency_s: NonNegative | None
    bandwidth_bytes_per_s: NonNegative | None
    """Algorithm bandwidth."""
    how: str = ""


def fit_link(least_s: Mapping[int, float]) -> LinkFit:
    """Fits both to the least time of a call in seconds by message bytes; sizes that were disturbed are left out.

    The least, since stalls only take away from a link: on a wire of 100 Mbit/s one gloo all-reduce in three took 5 to 10 %
    longer than the others, which were within 0.2 % of the wire's rate. Latency is the median over small sizes of what their
    bytes leave of their time, bandwidth the median over large ones of bytes over what latency leaves of theirs. No least squares
    over all: where a link lets a first burst pass faster that misses by 14 % and this by 2 % (tried, 100 to 1000 Mbit/s).
    """
    odd = disturbed(least_s)
    small = {size: time_s for size, time_s in least_s.items() if size <= LATENCY_UP_TO_BYTES and size not in odd}
    large = {size: time_s for size, time_s in least_s.items() if size >= BANDWIDTH_FROM_BYTES and size not in odd}
    latency_s, s_per_byte = _median(small.values()), 0.0
    for _ in range(ITERATIONS):
        s_per_byte = _median((time_s - (latency_s or 0.0)) / size for size, time_s in large.items()) or 0.0
        latency_s = _median(max(0.0, time_s - size * s_per_byte) for size, time_s in small.items())
    return LinkFit(
        latency_s=latency_s,
        bandwidth_bytes_per_s=1 / s_per_byte if s_per_byte > 0 else None,
        how=_how(len(small), len(large), len(odd)),
    )


def disturbed(least_s: Mapping[int, float]) -> list[int]:
    """Sizes of which every call took longer than one of a larger message, by more than a change of algorithm explains."""
    return [
        size for size, time_s in least_s.items() if time_s > DISTURBED_FACTOR * min(t for s, t in least_s.items() if s >= size)
    ]


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


def _how(small: int, large: int, odd: int) -> str:
    latency = f"latency: least time of {small} sizes up to 4 KiB" if small else "latency: no size up to 4 KiB"
    bandwidth = f"bytes/(least time - latency) of {large} sizes from 4 MiB on" if large else "no size from 4 MiB on"
    return f"{latency}; bandwidth: {bandwidth}; medians{f'; without {odd} that were disturbed' if odd else ''}"


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
