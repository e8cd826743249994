"""The points that speedups are relative to: one GPU and one full node, for each series that is measured at several sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hpcddp.core.point import Measure, Point
from hpcddp.sweep.file import Sweep

LayoutSize = tuple[int, int]
"""Nodes, GPUs per node."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A baseline that no group of the sweep lists, and the groups of the series that lacks it."""

    sweep: Sweep
    groups: tuple[str, ...]


@dataclass
class _Series:
    first: Sweep
    sizes: dict[LayoutSize, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)


def missing_baselines(measured: Iterable[tuple[Sweep, Point, str]]) -> list[Baseline]:
    """The baselines that each series, points that differ in their size only, lacks. `measured`: points, with sweep and group.

    A series of a single size scales nowhere and needs none. A full node has the most GPUs per node of its series, as in analysis.
    """
    found: dict[Point, _Series] = {}
    for sweep, point, group in measured:
        series = found.setdefault(_without_size(sweep, point), _Series(sweep))
        series.sizes[point.layout.nodes, point.layout.gpus_per_node] = None
        series.groups[group] = None
    return [
        Baseline(sweep=_resized(series.first, size), groups=tuple(series.groups))
        for series in found.values()
        if len(series.sizes) > 1
        for size in dict.fromkeys([(1, 1), (1, max(gpus for _, gpus in series.sizes))])
        if size not in series.sizes
    ]


def _without_size(sweep: Sweep, point: Point) -> Point:
    """Equal for the points of a series: these differ in nodes and GPUs, and in what is done beside or after the timed steps."""
    holds_total = sweep.hold == "global_batch" and point.workload.known_batch is not None
    batch = point.global_batch if holds_total else point.workload.batch_per_gpu
    beside = {key: getattr(Measure, key) for key in ("comm", "profile_steps", "profile_ranks", "evaluate", "evaluate_every")}
    return dataclasses.replace(
        point,
        workload=replace(point.workload, batch_per_gpu=batch),
        layout=replace(point.layout, nodes=1, gpus_per_node=1),
        measure=replace(point.measure, **beside),
    )


def _resized(sweep: Sweep, size: LayoutSize) -> Sweep:
    nodes, gpus = size
    return replace(sweep, layout=replace(sweep.layout, nodes=nodes, gpus_per_node=gpus))
