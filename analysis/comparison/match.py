"""Which points of two studies may be compared: the same layout and workload, however the machines and software differ."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.accuracy import Evaluated, evaluated, evaluated_epochs, median_losses
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.readings import over_runs
from hpcddp.analysis.study.scaling import by_point, rates_per_s, timed_runs
from hpcddp.analysis.study.series import FOUND, SeriesKey, key_text, series_order, short_name, value_text, workload_key
from hpcddp.core.point import Point
from hpcddp.core.run_root import RunKey
from hpcddp.core.text import natural

HOLD = "batch_per_gpu"
"""Points are matched by their own batch per GPU, whatever their study holds constant."""

TIMING = ("warmup_steps", "warmup", "steps", "stop", "seconds", "interval_percent", "max_steps", "gc", "telemetry_hz")
"""Keys that say how long and how a run is timed: points that differ only in these measure the same."""

ELSEWHERE = (("cluster", "layout.node_type"), ("layout.physical_cores_per_rank",))
"""Keys that mean something else on another cluster, and so count only between studies of the same clusters."""

DIFFER_AT_MOST = 3


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """The runs that a point's throughput is of, on one kind of GPU and in one software environment; at least one."""

    label: str
    key: SeriesKey
    """The point, flat, with `env_id` and `gpu`."""
    environment: str
    """What tells its software environment from others of its study."""
    runs: tuple[RunKey, ...]
    """Labels differ where points differ in what is outside a series only."""
    rates: tuple[Fraction, ...]
    """Samples per second of each."""
    hook: bool
    """The runs have the communication hook, because there are none without it."""
    evaluated: Evaluated | None = None
    """Accuracies, of runs with and without the hook."""
    readings: Mapping[str, float | str | None] = field(default_factory=dict)
    """Telemetry's figures as readings.over_runs has them."""
    evaluated_at: Mapping[int, Evaluated] = field(default_factory=dict)
    """Of trainings: the same by samples trained, where every run was evaluated."""
    trainings: tuple[Run, ...] = ()
    """The runs of whole epochs, with and without the hook."""
    losses: tuple[float, float, int] | None = None
    """At the start, at the end, over so many steps each; None where not known."""

    @property
    def layout(self) -> tuple[int, int]:
        """Nodes, GPUs per node."""
        return self.key["layout.nodes"], self.key["layout.gpus_per_node"]


@dataclass(frozen=True)
class Unmatched:
    """A point without a counterpart; `reason` in words."""

    label: str
    reason: str
    unfinished: bool = False
    """The other study has the point, but no run of it that counts."""


def measured_points(records: StudyRecords, runs: pd.DataFrame) -> list[MeasuredPoint]:
    """The points of a study that have runs that count, by layout, then by everything else; `runs` of runs_frame."""
    frame = runs if records.hold == HOLD else runs_frame(dataclasses.replace(records, hold=HOLD))
    of_key = {(run.label, run.run): run for run in records.runs}
    found = []
    for (series, nodes, gpus), members in by_point(frame):
        timed, of_series = timed_runs(members), json.loads(series)
        counting = [of_key[key] for key in zip(members["label"], members["run"], strict=True)]
        found.append(
            MeasuredPoint(
                label=" + ".join(sorted(set(timed["label"]), key=natural)),
                key=of_series
                | {"env_id": members["env_id"].iloc[0], "layout.nodes": int(nodes), "layout.gpus_per_node": int(gpus)},
                environment=of_series["env_id"],
                runs=tuple(RunKey(str(label), int(run)) for label, run in zip(timed["label"], timed["run"], strict=True)),
                rates=tuple(rates_per_s(timed)),
                hook=bool(timed["hook"].any()),
                evaluated=evaluated(members),
                evaluated_at=evaluated_epochs(counting),
                trainings=tuple(run for run in counting if run.epochs),
                losses=median_losses(members),
                readings=over_runs(timed),
            )
        )
    return sorted(found, key=_place)


def matched(a: Sequence[MeasuredPoint], b: Sequence[MeasuredPoint]) -> list[tuple[MeasuredPoint, MeasuredPoint]]:
    """Pairs of points that are equal in all that counts. Points that are equal in more are paired first; a point that several
    of the other study fit is in no pair."""
    pairs: list[tuple[MeasuredPoint, MeasuredPoint]] = []
    taken: set[int] = set()
    for loose in _levels(a, b):
        others = _by_key(b, loose)
        for text, mine in _by_key(a, loose).items():
            fitting = others.get(text, [])
            if len(mine) == len(fitting) == 1 and not taken & {id(mine[0]), id(fitting[0])}:
                pairs.append((mine[0], fitting[0]))
                taken |= {id(mine[0]), id(fitting[0])}
    return sorted(pairs, key=lambda pair: _place(pair[0]))


def unmatched(
    mine: Sequence[MeasuredPoint], others: Sequence[MeasuredPoint], theirs: StudyRecords, paired: Sequence[MeasuredPoint]
) -> list[Unmatched]:
    """Points of `mine` that are not among `paired`, each with the reason; `theirs` is the study that `others` come from."""
    *_, loose = _levels(mine, others)
    return [_unmatched(group, others, theirs, loose) for group in mine if all(group is not each for each in paired)]


def _unmatched(group: MeasuredPoint, others: Sequence[MeasuredPoint], theirs: StudyRecords, loose: frozenset[str]) -> Unmatched:
    text = _text(group.key, loose)
    fitting = _by_key(others, loose).get(text, [])
    if fitting:
        found = (f"{each.label} ({each.key['gpu'] or 'no GPU'}, {each.environment})" for each in fitting)
        which = ", ".join(sorted(found, key=natural))
        return Unmatched(
            group.label, f"more than one fits: {which}" if len(fitting) > 1 else f"not the only one that fits {which}"
        )
    planned = [point for point in theirs.points if point.work != "comm" and _text(_point_key(point), loose) == text]
    if planned:
        reasons = [run.reason for run in theirs.runs if run.label == planned[0].label and run.reason]
        return Unmatched(group.label, f"no run of {planned[0].label} counts: {reasons[0] if reasons else 'not started'}", True)
    nearest = min(others, key=lambda each: _distance(group, each, loose), default=None)
    if nearest is None:
        return Unmatched(group.label, "no run there counts")
    return Unmatched(group.label, f"nearest is {nearest.label}: {_differences(group.key, nearest.key, loose)}")


def _distance(a: MeasuredPoint, b: MeasuredPoint, loose: frozenset[str]) -> tuple[Any, ...]:
    """Another layout is farther than any other difference; of other layouts that of the nearest number of GPUs is nearest, of
    equally many other values the nearest numbers."""
    names = _differing(a.key, b.key, loose)
    gpus = _apart(math.prod(a.layout), math.prod(b.layout))
    return a.layout != b.layout, len(names), gpus, sum(_apart(a.key.get(name), b.key.get(name)) for name in names), _place(b)


def _apart(a: object, b: object) -> float:
    """How far two values are apart: 0 where they are equal, 1 where one of them is 0 or no number."""
    if isinstance(a, int | float) and isinstance(b, int | float) and min(a, b) > 0:
        return 1 - min(a, b) / max(a, b)
    return 1.0


def _differences(a: SeriesKey, b: SeriesKey, loose: frozenset[str]) -> str:
    """`workers 8, there 4`"""
    names = _differing(a, b, loose)
    texts = [f"{short_name(name)} {value_text(a.get(name))}, there {value_text(b.get(name))}" for name in names[:DIFFER_AT_MOST]]
    more = f"; and {len(names) - DIFFER_AT_MOST} more" if len(names) > DIFFER_AT_MOST else ""
    return "; ".join(texts) + more


def _differing(a: SeriesKey, b: SeriesKey, loose: frozenset[str]) -> list[str]:
    return sorted(name for name in {*a, *b} - loose if a.get(name) != b.get(name))


def _place(group: MeasuredPoint) -> tuple[Any, ...]:
    """By size, then by values: batch 32 before 128."""
    text = key_text(group.key)
    return (*group.layout, series_order(text, text))


def _levels(a: Sequence[MeasuredPoint], b: Sequence[MeasuredPoint]) -> Iterator[frozenset[str]]:
    """Sets of keys that need not be equal, beginning with none; each set includes those before it."""
    same_clusters = {group.key["cluster"] for group in a} == {group.key["cluster"] for group in b}
    steps = [("env_id",), ("gpu",), *(() if same_clusters else ELSEWHERE), tuple(f"measure.{name}" for name in TIMING)]
    loose = frozenset[str]()
    yield loose
    for step in steps:
        loose |= frozenset(step)
        yield loose


def _by_key(measured_points: Sequence[MeasuredPoint], loose: frozenset[str]) -> dict[str, list[MeasuredPoint]]:
    found: dict[str, list[MeasuredPoint]] = {}
    for group in measured_points:
        found.setdefault(_text(group.key, loose), []).append(group)
    return found


def _text(key: SeriesKey, loose: frozenset[str]) -> str:
    return key_text({name: value for name, value in key.items() if name not in loose})


def _point_key(point: Point) -> SeriesKey:
    """The key of a point that has not been measured yet, as MeasuredPoint.key."""
    layout = {"layout.nodes": point.layout.nodes, "layout.gpus_per_node": point.layout.gpus_per_node}
    return {**workload_key(point, HOLD), **layout, **dict.fromkeys(FOUND)}
