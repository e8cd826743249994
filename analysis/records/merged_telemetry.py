"""Telemetry of a run that several attempts made: of each node and each of its GPUs, what the attempts read together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hpcddp.core.telemetry_record import GpuTelemetry, NodeTelemetry

Read = TypeVar("Read", NodeTelemetry, GpuTelemetry)


def merged_nodes(nodes: Sequence[NodeTelemetry]) -> tuple[NodeTelemetry, ...]:
    """By host: sums of times, samples, readings and energy, the largest of peaks and shares of CPU time, means by readings.

    Clocks are those of the attempt with most readings. A sum, and a mean, is unknown where one of its parts is.
    """
    by_host: dict[str | None, list[NodeTelemetry]] = {}
    for node in nodes:
        by_host.setdefault(node.host, []).append(node)
    return tuple(same[0] if len(same) == 1 else _node(same) for same in by_host.values())


def _node(same: Sequence[NodeTelemetry]) -> NodeTelemetry:
    gpus: dict[int, list[GpuTelemetry]] = {}
    for gpu in (gpu for node in same for gpu in node.gpus):
        gpus.setdefault(gpu.gpu, []).append(gpu)
    complete = all(len(each) == len(same) for each in gpus.values())
    largest = ("cpu_busy_share", "cpu_job_share", "cpu_foreign_share", "mem_used_peak_bytes", "mem_total_bytes", "power_w_peak")
    rates = [f"{net}_{way}_bytes_per_s" for net in ("net", "ib") for way in ("rx", "tx")]
    sums = ("window_s", "samples", "readings", "readings_s", "energy_j")
    changes = {
        **{name: _largest(same, name) for name in largest},
        **{name: _sum(same, name) for name in sums},
        **{name: _mean(same, name) for name in ("mem_used_mean_bytes", "power_w_mean", *rates)},
        "gpus": tuple(_gpu(each) for _, each in sorted(gpus.items())) if complete else (),
    }
    return replace(same[0], **changes)  # type: ignore[arg-type]


def _gpu(same: Sequence[GpuTelemetry]) -> GpuTelemetry:
    most = max(same, key=lambda gpu: gpu.readings)
    sources = {gpu.energy_from for gpu in same}
    changes = {
        **{name: _largest(same, name) for name in ("mem_used_peak_bytes", "power_w_peak", "temperature_c_peak")},
        **{name: _sum(same, name) for name in ("readings", "energy_j")},
        **{name: _mean(same, name) for name in ("util_percent_mean", "mem_used_mean_bytes", "power_w_mean")},
        "sm_mhz_min": min((gpu.sm_mhz_min for gpu in same if gpu.sm_mhz_min is not None), default=None),
        "throttle": _throttle(same),
        "energy_from": sources.pop() if len(sources) == 1 else "power",
    }
    return replace(most, **changes)  # type: ignore[arg-type]


def _throttle(same: Sequence[GpuTelemetry]) -> dict[str, float] | None:
    known = [(gpu.throttle, gpu.readings) for gpu in same if gpu.throttle is not None]
    total = sum(readings for _, readings in known)
    if len(known) < len(same) or not total:
        return None
    reasons = sorted({reason for shares, _ in known for reason in shares})
    return {reason: sum(shares.get(reason, 0.0) * readings for shares, readings in known) / total for reason in reasons}


def _values(same: Sequence[Read], name: str) -> list[float]:
    return [value for each in same if (value := getattr(each, name)) is not None]


def _largest(same: Sequence[Read], name: str) -> float | None:
    return max(_values(same, name), default=None)


def _sum(same: Sequence[Read], name: str) -> float | None:
    known = _values(same, name)
    return sum(known) if len(known) == len(same) else None


def _mean(same: Sequence[Read], name: str) -> float | None:
    """Weighted by readings; an attempt too short for one counts nothing."""
    known = [(getattr(each, name), each.readings or 0) for each in same if each.readings]
    total = sum(readings for _, readings in known)
    if not total or any(value is None for value, _ in known):
        return None
    return float(sum(value * readings for value, readings in known) / total)
