"""What a key changes: points that are equal in everything but that key, beside each other, each against a named base value."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from hpcddp.analysis.study.effects import CHANCE, INTERVAL, LEAST, Ratio, half_width, ratio
from hpcddp.analysis.study.frames import step_total_s
from hpcddp.analysis.study.scaling import by_point, rates_per_s, timed_runs
from hpcddp.analysis.study.series import FOUND, short_name, value_text
from hpcddp.core.point import Data, Layout, Point, Workload, flat_keys, to_json

TIMED_OTHERWISE = ("measure.input", "measure.gc", "measure.keep_memory")
"""Keys of `measure` that change how fast a run trains; the others say how it is timed."""

FOLLOWING = {"layout.node_type": FOUND, "device": FOUND}
"""Key -> what is found at launch and goes with its value: another node type has another GPU, and maybe another build."""

NUMBER = (int, float)

OF_MEMORY = ("workload.parallel", "workload.fsdp.")
"""Keys that decide how much of a model a rank holds."""

OF_EFFECTS = "effect_"
"""How the names of files about keys begin."""


@dataclass(frozen=True, kw_only=True)
class AxisValue:
    """A point, by its value of the key."""

    value: Any
    text: str
    also: str
    """What else differs because it goes with the value: `cores/rank 10`; empty where nothing does."""
    point: Mapping[str, Any]
    """Its row of the scaling table."""
    rates: tuple[Fraction, ...]
    """Samples per second of its runs."""
    started_ns: tuple[int, ...]
    """When those of its runs started of which that is known, Unix time."""
    data_wait_share: float | None
    peak_memory_bytes: int | None
    """The most of any rank, where the key is about what a rank holds."""

    @property
    def floats(self) -> list[float]:
        return list(map(float, self.rates))

    @property
    def rate(self) -> float:
        return float(self.point["samples_per_s"])


@dataclass(frozen=True, kw_only=True)
class AxisPanel:
    """Points that are equal in everything else, their size too, by value."""

    nodes: int
    gpus_per_node: int
    device: str
    others: Mapping[str, Any]
    """Short name -> value of what tells this panel from others of the key, besides the size."""
    values: tuple[AxisValue, ...]
    base: int
    """Which of them the others are compared with."""
    p: float | None = None
    """How often chance makes values differ at least as much, adjusted for all comparisons of the study; None: too few runs."""

    @property
    def differs(self) -> bool:
        return self.p is not None and self.p <= CHANCE

    @cached_property
    def in_blocks(self) -> tuple[AxisValue, AxisValue] | None:
        """Two values of which all runs of the first started after all of the second, the furthest apart: drift of the machine
        looks like an effect then. Few runs say nothing of that."""
        known = [each for each in self.values if len(each.started_ns) == len(each.rates) >= LEAST]
        found = [pair for pair in permutations(known, 2) if min(pair[0].started_ns) > max(pair[1].started_ns)]
        return max(found, key=lambda pair: abs(math.log(pair[0].rate / pair[1].rate)), default=None)

    @property
    def is_sure(self) -> bool:
        return self.differs and self.in_blocks is None

    def compared(self, value: AxisValue, base: AxisValue) -> Ratio:
        """Throughput by that of another value. From three runs of each on the interval holds for all pairs of values at once, and
        reaches 1 where values do not differ by more than chance."""
        found, runs = ratio(value.rates, base.rates), [each.floats for each in self.values]
        if self.p is None:
            return found
        half = half_width(runs, self.values.index(value), self.values.index(base))
        middle = float(np.log(value.floats).mean() - np.log(base.floats).mean())
        ends = [found.ratio, math.exp(middle - half), math.exp(middle + half), *([] if self.differs else [1.0])]
        return Ratio(found.ratio, min(ends), max(ends), INTERVAL)

    def against_base(self, value: AxisValue) -> Ratio | None:
        """None of the base itself."""
        return None if value is self.values[self.base] else self.compared(value, self.values[self.base])

    @property
    def where(self) -> str:
        """`1x4`, `1x4, batch/GPU 64`"""
        more = [f"{name} {axis_text(value)}" for name, value in self.others.items()]
        return ", ".join([f"{self.nodes}x{self.gpus_per_node}", *more])


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A key of which points differ."""

    key: str
    name: str
    """Short: `workers`."""
    joint: tuple[str, ...]
    """Other keys that always change with it."""
    panels: tuple[AxisPanel, ...]
    interactions: tuple[str, ...] = ()
    """Where its effect depends on another key by more than chance, a sentence each."""

    @property
    def stem(self) -> str:
        return f"{OF_EFFECTS}{self.key.partition('.')[2].replace('.', '_') or self.key}"

    @property
    def ordered(self) -> bool:
        return all(is_number(value.value) for panel in self.panels for value in panel.values)


def is_number(value: Any) -> bool:
    """True and False are words."""
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def axis_text(value: Any) -> str:
    """A value as short text; None is what torch, or the cluster, does by itself."""
    return "default" if value is None else value_text(value)


@dataclass(frozen=True)
class _Measured:
    """A row of the scaling table with its keys."""

    keys: Mapping[str, Any]
    texts: Mapping[str, str]
    row: Mapping[str, Any]
    rates: tuple[Fraction, ...]
    started_ns: tuple[int, ...]
    wait: float | None
    memory_bytes: int | None

    @property
    def size(self) -> tuple[int, int]:
        return int(self.row["nodes"]), int(self.row["gpus_per_node"])


def axes(runs: pd.DataFrame, scaling: pd.DataFrame) -> list[Axis]:
    """Every key in which points of one size differ while all else is equal; those of most points first."""
    points = _measured(runs, scaling)
    names = sorted({name for point in points for name in point.keys})
    varying = [name for name in names if len({point.texts.get(name) for point in points}) > 1]
    fixed = ("measure", "work", "cluster")
    candidates = [
        name for name in varying if name in TIMED_OTHERWISE or (name.partition(".")[0] not in fixed and name not in FOUND)
    ]
    single = {name: found for name in candidates if (found := _groups(points, varying, (name,)))}
    several = _joint_keys(points, varying, [name for name in candidates if name not in single])
    of_all = {(name,): groups for name, groups in single.items()} | several
    made = [_axis(joint, groups, varying, points) for joint, groups in of_all.items()]
    return sorted(made, key=lambda axis: (-sum(len(panel.values) for panel in axis.panels), axis.key))


def _measured(runs: pd.DataFrame, scaling: pd.DataFrame) -> list[_Measured]:
    timed = {key: timed_runs(members) for key, members in by_point(runs)}
    memories = {key: members["peak_memory_bytes"].max() for key, members in by_point(runs)}
    waits = scaling["data_wait_s"] / step_total_s(scaling)
    found = []
    for (_, row), wait in zip(scaling.iterrows(), waits, strict=True):
        keys = json.loads(row["series"])
        plain = {str(name): value for name, value in row.items()}
        texts = {name: to_json(value) for name, value in keys.items()}
        key = row["series"], row["nodes"], row["gpus_per_node"]
        rates, started_ns = tuple(rates_per_s(timed[key])), tuple(map(int, timed[key]["started_unix_ns"].dropna()))
        known_wait = None if pd.isna(wait) else float(wait)
        memory = None if pd.isna(memories[key]) else int(memories[key])
        found.append(_Measured(keys, texts, plain, rates, started_ns, known_wait, memory))
    return found


def _groups(points: Sequence[_Measured], varying: Sequence[str], joint: Sequence[str]) -> list[list[_Measured]]:
    others = [name for name in varying if name not in joint]
    found: dict[tuple[Any, ...], list[_Measured]] = {}
    for point in points:
        found.setdefault((point.size, *(point.texts.get(name) for name in others)), []).append(point)
    return [group for group in found.values() if 1 < len(group) == len({point.texts.get(joint[0]) for point in group})]


def _joint_keys(
    points: Sequence[_Measured], varying: Sequence[str], names: Sequence[str]
) -> dict[tuple[str, ...], list[list[_Measured]]]:
    """Keys that never change alone: the first of those that change together, the others, and the points."""
    found: dict[tuple[str, ...], list[list[_Measured]]] = {}
    for name in sorted(names, key=lambda name: (name not in FOLLOWING, name)):
        if any(name in joint for joint in found):
            continue
        may = [each for each in (*names, *FOLLOWING.get(name, ())) if each != name and each in varying]
        joint = (name, *(each for each in may if _follows(points, name, each)))
        if len(joint) > 1 and (groups := _groups(points, varying, joint)):
            found[joint] = groups
    return found


def _follows(points: Sequence[_Measured], name: str, other: str) -> bool:
    found = {(point.size, point.texts.get(name), point.texts.get(other)) for point in points}
    return len(found) == len({(size, value) for size, value, _ in found})


def _axis(
    joint: tuple[str, ...], groups: Sequence[Sequence[_Measured]], varying: Sequence[str], points: Sequence[_Measured]
) -> Axis:
    key, *more = joint
    every = [point for group in groups for point in group]
    varied = [name for name in varying if name not in joint and len({point.texts.get(name) for point in every}) > 1]
    apart = [name for name in varied if not _is_implied(every, name, joint)]
    counts = Counter(point.texts.get(key) for point in points)
    panels = [_panel(key, more, group, apart, counts) for group in groups]
    panels.sort(key=lambda panel: (panel.nodes * panel.gpus_per_node, panel.nodes, [*map(value_order, panel.others.values())]))
    return Axis(key=key, name=short_name(key), joint=tuple(more), panels=tuple(panels))


def _is_implied(points: Sequence[_Measured], name: str, joint: Sequence[str]) -> bool:
    """What is found at launch is not named where something else already tells the points apart."""
    others = [other for other in points[0].keys if other not in (*joint, *FOUND)]
    return name in FOUND and any(_follows(points, other, name) for other in others)


def _panel(
    key: str, more: Sequence[str], group: Sequence[_Measured], apart: Sequence[str], counts: Counter[str | None]
) -> AxisPanel:
    points = sorted(group, key=lambda point: value_order(point.keys.get(key)))
    base = _base(key, points, counts)
    if not all(is_number(point.keys.get(key)) for point in points):  # in no order of their own: the base comes first
        points, base = [points[base], *points[:base], *points[base + 1 :]], 0
    differing = [name for name in more if len({point.texts.get(name) for point in points}) > 1]
    values = [
        AxisValue(
            value=point.keys.get(key),
            text=axis_text(point.keys.get(key)),
            also=", ".join(f"{short_name(name)} {axis_text(point.keys.get(name))}" for name in differing),
            point=point.row,
            rates=point.rates,
            started_ns=point.started_ns,
            data_wait_share=point.wait,
            peak_memory_bytes=point.memory_bytes if key.startswith(OF_MEMORY) else None,
        )
        for point in points
    ]
    nodes, gpus = points[0].size
    others = {short_name(name): points[0].keys.get(name) for name in apart}
    device = str(points[0].row["device"])
    return AxisPanel(nodes=nodes, gpus_per_node=gpus, device=device, others=others, values=tuple(values), base=base)


def _base(key: str, points: Sequence[_Measured], counts: Counter[str | None]) -> int:
    """The value that most points of the study have; of several the key's default, else the first."""
    most = max(counts[point.texts.get(key)] for point in points)
    often = [i for i, point in enumerate(points) if counts[point.texts.get(key)] == most]
    default = to_json(DEFAULTS.get(key))
    return next((i for i in often if points[i].texts.get(key) == default), often[0])


def value_order(value: Any) -> tuple[int, float, str]:
    """Sorts values: none first, then off and on, then numbers, then words."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, bool):
        return 1, float(value), ""
    return (2, float(value), "") if isinstance(value, NUMBER) else (3, 0.0, to_json(value))


def effect_rows(found: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """A row per point of each key, for effects.csv."""
    for axis in found:
        for panel in axis.panels:
            base = panel.values[panel.base].text
            for value in panel.values:
                yield {"key": axis.key, **value_row(panel, value), "base": base, "where": panel.where}


def value_row(panel: AxisPanel, value: AxisValue) -> dict[str, Any]:
    """What is known of one point; unknown is None."""
    against, point = panel.against_base(value), value.point
    return {
        "nodes": panel.nodes,
        "gpus_per_node": panel.gpus_per_node,
        "value": value.text,
        "also": value.also,
        "label": point["label"],
        "n": len(value.rates),
        **{name: None if pd.isna(point[name]) else point[name] for name in OF_POINT},
        "ratio": against.ratio if against else 1.0,
        "ratio_low": against.low if against else None,
        "ratio_high": against.high if against else None,
        "ratio_interval": against.kind if against else None,
        "data_wait_share": value.data_wait_share,
        **({} if value.peak_memory_bytes is None else {"peak_memory_bytes": value.peak_memory_bytes}),
    }


OF_POINT = ("samples_per_s", "samples_per_s_low", "samples_per_s_high", "interval", "epoch_s", "node_h_per_epoch")


DEFAULTS = flat_keys(Point(cluster="", workload=Workload(model="", data=Data(name="")), layout=Layout()))
"""Key -> what it is where a sweep does not say."""
