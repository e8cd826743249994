"""Readings of two studies beside each other: what the GPUs and nodes of a point did otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcddp.analysis.comparison.match import MeasuredPoint
from hpcddp.analysis.util.wording import percent, quantity

AT_LEAST = 0.10
"""Share of A's value from which on another value of B is named: below it, equal runs on other nodes differ too. A convention."""


@dataclass(frozen=True)
class _Compared:
    head: str
    text: Callable[[float], str]
    least: float
    """Difference below which nothing is said, in the figure's own unit."""


NAMED: dict[str, _Compared] = {
    "gpu_util_percent": _Compared("GPU utilisation", lambda value: f"{value:.0f} %", 5.0),
    "gpu_power_w_mean": _Compared("power per GPU", lambda value: f"{quantity(value)} W", 5.0),
    "gpu_sm_mhz_median": _Compared("SM clock", lambda value: f"{value:.0f} MHz", 15.0),
    "gpu_mem_used_peak_bytes": _Compared("GPU memory", lambda value: f"{quantity(value / 1e9)} GB", 1e8),
    "energy_j_per_1000_samples": _Compared("energy of 1000 samples", lambda value: f"{quantity(value)} J", 0.0),
    "cpu_job_share": _Compared("CPUs busy with the job", percent, 0.05),
    "cpu_foreign_share": _Compared("CPUs busy with others", percent, 0.05),
}
"""Figures that the text names where they differ; the JSON has all."""


def readings_plain(a: MeasuredPoint, b: MeasuredPoint) -> dict[str, Any]:
    """Every figure of either side, medians over its runs; None where it was not read."""
    return {name: {"a": a.readings.get(name), "b": b.readings.get(name)} for name in a.readings}


def differing_readings(a: MeasuredPoint, b: MeasuredPoint) -> list[str]:
    """`power per GPU 250 W -> 310 W`, of figures that both sides have and that differ."""
    return list(_differing(a.readings, b.readings))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name, of in NAMED.items():
        mine, other = a.get(name), b.get(name)
        if mine is not None and other is not None and abs(other - mine) >= max(AT_LEAST * abs(mine), of.least) and other != mine:
            yield f"{of.head} {of.text(mine)} -> {of.text(other)}"
