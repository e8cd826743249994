"""Several attempts or runs as one: of each node, its GPUs and the loaders, what they read together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from hpcddp.core.loader_record import LoaderTimes
from hpcddp.core.telemetry_record import GpuTelemetry, NodeTelemetry


def merged_fields(same: Sequence[Any]) -> dict[str, Any]:
    """Of records of one class, each field that says how it is merged (`merge`: max, mean, min or sum).

    A sum, and a mean, is unknown where one of its parts is. Means are weighted by `readings`; a record without any has no part.
    """
    return {of.name: _merged(same, of.name, how) for of in fields(same[0]) if (how := of.metadata.get("merge"))}


def _merged(same: Sequence[Any], name: str, how: str) -> Any:
    values = [getattr(each, name) for each in same]
    known = [value for value in values if value is not None]
    if how in ("max", "min"):
        return (max if how == "max" else min)(known, default=None)
    if how == "sum":
        return sum(known) if len(known) == len(values) else None
    return _mean([(value, each.readings) for value, each in zip(values, same, strict=True) if each.readings])


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    if not weighted or any(value is None for value, _ in weighted):
        return None
    return float(sum((value or 0.0) * weight for value, weight in weighted) / sum(weight for _, weight in weighted))


def merged_nodes(nodes: Iterable[NodeTelemetry]) -> tuple[NodeTelemetry, ...]:
    """By host. Clocks are those of the attempt with most readings."""
    by_host: dict[str | None, list[NodeTelemetry]] = {}
    for node in nodes:
        by_host.setdefault(node.host, []).append(node)
    return tuple(same[0] if len(same) == 1 else _node(same) for same in by_host.values())


def _node(same: Sequence[NodeTelemetry]) -> NodeTelemetry:
    gpus: dict[int, list[GpuTelemetry]] = {}
    for gpu in (gpu for node in same for gpu in node.gpus):
        gpus.setdefault(gpu.gpu, []).append(gpu)
    complete = all(len(each) == len(same) for each in gpus.values())
    merged = tuple(_gpu(each) for _, each in sorted(gpus.items())) if complete else ()
    return replace(same[0], **merged_fields(same), gpus=merged)


def _gpu(same: Sequence[GpuTelemetry]) -> GpuTelemetry:
    most = max(same, key=lambda gpu: gpu.readings)
    sources = {gpu.energy_from for gpu in same}
    energy_from = sources.pop() if len(sources) == 1 else "power"
    return replace(most, **merged_fields(same), throttle=_throttle(same), energy_from=energy_from)


def _throttle(same: Sequence[GpuTelemetry]) -> dict[str, float] | None:
    known = [(gpu.throttle, gpu.readings) for gpu in same if gpu.throttle is not None]
    total = sum(readings for _, readings in known)
    if len(known) < len(same) or not total:
        return None
    reasons = sorted({reason for shares, _ in known for reason in shares})
    return {reason: sum(shares.get(reason, 0.0) * readings for shares, readings in known) / total for reason in reasons}


def merged_loader(found: Iterable[LoaderTimes | None]) -> LoaderTimes | None:
    """Times add up, rates are weighted by samples; None where nothing is known of any. Of equal workers, as one point has."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    took_s = sum(each.samples / each.samples_per_s for each in known if each.samples_per_s)
    rate = sum(each.samples for each in known) / took_s if took_s else 0.0
    return replace(known[0], **merged_fields(known), samples_per_s=rate)
