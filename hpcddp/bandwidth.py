"""Bandwidth of collectives as nccl-tests defines it, and the two numbers that say how a link behaves.

Standard library only, Python 3.10. Source: NVIDIA/nccl-tests doc/PERFORMANCE.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LATENCY_UP_TO_BYTES = 4 * 2**10
"""Sizes whose time is all latency."""

BANDWIDTH_FROM_BYTES = 4 * 2**20
"""Sizes whose time is nearly all transfer, and that a token bucket's first burst hardly shortens."""


def bus_share(op: str, ranks: int) -> float:
    """Bytes that pass the busiest link per byte of the message: algorithm bandwidth times this is bus bandwidth.

    0 for an all-reduce, reduce-scatter or all-gather of one rank: nothing passes.
    """
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in ("reduce_scatter", "all_gather"):
        return (ranks - 1) / ranks
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A time of about latency_s + bytes / bandwidth_bytes_per_s; None where no size says."""

    latency_s: float | None
    bandwidth_bytes_per_s: float | None
    """Algorithm bandwidth."""
    how: str


def fit(times_s: Mapping[int, float], least_s: Mapping[int, float]) -> Fit:
    """Message bytes -> seconds: the typical time, for latency, and the least, for bandwidth.

    The least, since stalls only take away from a link: on a wire of 100 Mbit/s one gloo all-reduce in three took 5 to 10 %
    longer than the others, which were within 0.2 % of the wire's rate. Two medians over sizes, no least squares over all: where a
    link lets a first burst pass faster that misses by 14 % and the median of large messages by 2 % (tried, 100 to 1000 Mbit/s).
    """
    small = [time_s for size, time_s in times_s.items() if size <= LATENCY_UP_TO_BYTES]
    rates = [size / time_s for size, time_s in least_s.items() if size >= BANDWIDTH_FROM_BYTES]
    return Fit(latency_s=_median(small), bandwidth_bytes_per_s=_median(rates), how=_how(len(small), len(rates)))


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _how(small: int, large: int) -> str:
    latency = f"latency: median time of {small} sizes up to 4 KiB" if small else "latency: no size up to 4 KiB"
    bandwidth = f"median bytes/least time of {large} sizes from 4 MiB on" if large else "no size from 4 MiB on"
    return f"{latency}; bandwidth: {bandwidth}"
