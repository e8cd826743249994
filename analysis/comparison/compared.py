"""Which points of two studies may be compared, and what both measured alike: accuracy, time to one, readings, effects of keys.

Points are of the same layout and workload, however the machines and software differ. What both sides have is compared where it
can be, otherwise not at all, with the reason.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pandas as pd

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.runs.run import NOT_STARTED, Run
from hpcddp.analysis.study import accuracy
from hpcddp.analysis.study.axes import Axis, AxisPanel, axes
from hpcddp.analysis.study.axis_words import judged_axes
from hpcddp.analysis.study.effects import Ratio, ratio
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.readings import over_runs
from hpcddp.analysis.study.scaling import by_point, rates_per_s, scaling_frame, timed_runs
from hpcddp.analysis.study.series import FOUND, SeriesKey, key_text, series_order, short_name, value_text, workload_key
from hpcddp.analysis.util.wording import effort, percent, quantity
from hpcddp.analysis.verdicts.sentence import gap_words
from hpcddp.core.point import Point
from hpcddp.core.run_root import RunKey
from hpcddp.core.text import count, natural, thousands

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
    evaluated: accuracy.Evaluated | None = None
    """Accuracies, of runs with and without the hook."""
    readings: Mapping[str, float | str | None] = field(default_factory=dict)
    """Telemetry's figures as readings.over_runs has them."""
    evaluated_at: Mapping[int, accuracy.Evaluated] = field(default_factory=dict)
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
                evaluated=accuracy.evaluated(members),
                evaluated_at=accuracy.evaluated_epochs(counting),
                trainings=tuple(run for run in counting if run.epochs),
                losses=accuracy.median_losses(members),
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
        return Unmatched(group.label, f"no run of {planned[0].label} counts: {reasons[0] if reasons else NOT_STARTED}", True)
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
    return accumulate(map(frozenset, steps), operator.or_, initial=frozenset())


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


@dataclass(frozen=True)
class Compared:
    """What both sides have, as compare.json has it, and what B's is to A's: `what` says whether a ratio or a difference."""

    what: str
    a: Mapping[str, Any] | None
    b: Mapping[str, Any] | None
    ratio: Ratio | accuracy.Gap | None
    why_not: str | None
    text: str
    """What the terminal says; empty where that is nothing."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What else compare.json has of it."""

    @property
    def plain(self) -> dict[str, Any]:
        """For compare.json."""
        value, low, high, kind = astuple(self.ratio) if self.ratio else (None,) * 4
        ends = {"low": low, "high": high, "interval": kind, "why_not": self.why_not}
        return {**self.about, "a": self.a, "b": self.b, self.what: value, **ends}


def ends_words(of: Ratio, digits: int = 3, dash: str = "-", *, kind: bool = True) -> str:
    """` (95 % 0.912-0.934)`, without its kind ` (0.912-0.934)`; nothing of one run against one."""
    if of.kind is None:
        return ""
    return f" ({f'{of.kind} ' if kind else ''}{of.low:.{digits}f}{dash}{of.high:.{digits}f})"


def compared_accuracy(a: MeasuredPoint, b: MeasuredPoint) -> Compared | None:
    """None where neither side was evaluated. Trainings that end at unlike samples are compared at the last that both had.

    `97.22 % (9,722 of 10,000) -> 97.31 % (9,731 of 10,000), no difference found (...), each after 640,000 samples`
    """
    mine, theirs = a.evaluated, b.evaluated
    if mine is None and theirs is None:
        return None
    common = [at for at in a.evaluated_at if at in b.evaluated_at and a.evaluated_at[at].samples == b.evaluated_at[at].samples]
    alike = mine is not None and theirs is not None and accuracy.same_training(mine, theirs)
    before_end = bool(common) and not alike
    if before_end:
        mine, theirs = a.evaluated_at[max(common)], b.evaluated_at[max(common)]
    loss_a, loss_b = (None, None) if before_end else (a.losses, b.losses)
    sides = _accuracy_side(mine, loss_a), _accuracy_side(theirs, loss_b)
    if mine is None or theirs is None or not (alike or before_end):
        why_not = _not_evaluated_alike(mine, theirs)
        return Compared("difference", *sides, None, why_not, f"not compared: {why_not}")
    found = accuracy.gap(theirs.shares, mine.shares)
    when = ", the last at which all were evaluated" if before_end else _losses(a, b)
    words = f"{mine.words} -> {theirs.words}, {gap_words(found) or 'one run each'}"
    return Compared("difference", *sides, found, None, f"{words}, each after {_trained(mine)}{when}")


def _not_evaluated_alike(mine: accuracy.Evaluated | None, theirs: accuracy.Evaluated | None) -> str:
    if mine is None or theirs is None:
        return f"only {'B' if mine is None else 'A'} has runs that were evaluated, on one evaluation set"
    if mine.samples != theirs.samples:
        return f"A was evaluated on {thousands(mine.samples)} samples, B on {thousands(theirs.samples)}"
    return f"A trained {_trained(mine)}, B {_trained(theirs)}; only equal amounts are compared"


def _losses(a: MeasuredPoint, b: MeasuredPoint) -> str:
    """`; training loss 2.30 to 0.081 -> 2.30 to 0.079 (first and last 10 steps)`, where both sides have it over as many steps."""
    if a.losses is None or b.losses is None or a.losses[2] != b.losses[2]:
        return ""
    mine, theirs = (f"{quantity(start)} to {quantity(end)}" for start, end, _ in (a.losses, b.losses))
    steps = a.losses[2]
    return f"; training loss {mine} -> {theirs} (first and last {'step' if steps == 1 else f'{steps} steps'})"


def _accuracy_side(found: accuracy.Evaluated | None, losses: tuple[float, float, int] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    start, end, steps = losses or (None, None, None)
    return {
        "accuracy": float(found.share),
        "correct": float(found.share * found.samples),
        "samples": found.samples,
        "n": len(found.shares),
        "samples_trained": sorted({each for each in found.trained if each is not None}),
        "loss_start": start,
        "loss_end": end,
        "loss_steps": steps,
    }


def _trained(found: accuracy.Evaluated) -> str:
    """`640,000 samples`, `640,000 to 650,000 samples`, `an unknown number of samples`"""
    known = sorted({each for each in found.trained if each is not None})
    if not known or None in found.trained:
        return "an unknown number of samples"
    return f"{thousands(known[0])} samples" if len(known) == 1 else f"{thousands(known[0])} to {thousands(known[-1])} samples"


def compared_time(a: MeasuredPoint, b: MeasuredPoint) -> Compared | None:
    """Time to an accuracy, at one target that all runs of both reached; None where neither side trained whole epochs.

    `93.00 % after 57.2 s (12 epochs) -> 50.1 s (12 epochs): B is there 1.142 times as fast (95 % 1.101-1.213)`
    """
    if not a.trainings and not b.trainings:
        return None
    target, of = accuracy.target_of([*a.trainings, *b.trainings])
    about = {"target": None if target is None else float(target), "target_of": of}
    why_not = _no_target_of_both(a.trainings, b.trainings, target)
    if target is None or why_not:
        return Compared("ratio", None, None, None, why_not, f"not compared: {why_not}", about)
    share = f"{float(100 * target):.2f} %"
    ends = [[accuracy.reached(run.epochs or (), target) for run in each.trainings] for each in (a, b)]
    times_a, times_b = ([Fraction(end.train_ns, 10**9) for end in each if end is not None] for each in ends)
    mine, theirs = (_time_side(each) for each in ends)
    if None in ends[0] or None in ends[1]:
        parts = (f"{side['reached']} of {count(side['n'], 'run')} of {name}" for name, side in (("A", mine), ("B", theirs)))
        why_not = f"{' and '.join(parts)} reached {share}"
        return Compared("ratio", mine, theirs, None, why_not, f"not compared: {why_not}", about)
    found = ratio(times_a, times_b)
    took_a, took_b = (effort(each["train_s"], each["epochs"]) for each in (mine, theirs))
    which = "" if of == accuracy.GIVEN else f", {of},"
    text = f"{share}{which} after {took_a} -> {took_b}: B is there {found.ratio:.3f} times as fast{ends_words(found)}"
    return Compared("ratio", mine, theirs, found, None, text, about)


def _no_target_of_both(mine: Sequence[Run], theirs: Sequence[Run], target: Fraction | None) -> str | None:
    if not mine or not theirs:
        return f"only {'B' if theirs else 'A'} has runs of whole epochs"
    if target is None:
        return "some runs were never evaluated"
    sets = [sorted({each.total for run in runs for each in run.epochs or () if each.total}) for runs in (mine, theirs)]
    if sets[0] != sets[1]:
        a, b = (" or ".join(thousands(size) for size in sizes) for sizes in sets)
        return f"A was evaluated on {a} samples, B on {b}"
    return None


def _time_side(ends: Sequence[Epoch | None]) -> dict[str, Any]:
    """Medians of training alone, where all runs reached the target; `ends`: the epoch in which each run did."""
    there = [end for end in ends if end is not None]
    known = len(there) == len(ends)
    return {
        "n": len(ends),
        "reached": len(there),
        "train_s": float(statistics.median(Fraction(end.train_ns, 10**9) for end in there)) if known else None,
        "epochs": float(statistics.median(end.epoch for end in there)) if known else None,
    }


AT_LEAST = 0.10
"""Share of A's value from which on another reading of B is named; below it, equal runs on other nodes differ too: convention."""

READINGS: dict[str, tuple[str, Callable[[float], str], float]] = {
    "gpu_util_percent": ("GPU utilisation", lambda value: f"{value:.0f} %", 5.0),
    "gpu_power_w_mean": ("power per GPU", lambda value: f"{quantity(value)} W", 5.0),
    "gpu_sm_mhz_median": ("SM clock", lambda value: f"{value:.0f} MHz", 15.0),
    "gpu_mem_used_peak_bytes": ("GPU memory", lambda value: f"{quantity(value / 1e9)} GB", 1e8),
    "energy_j_per_1000_samples": ("energy of 1000 samples", lambda value: f"{quantity(value)} J", 0.0),
    "cpu_job_share": ("CPUs busy with the job", percent, 0.05),
    "cpu_foreign_share": ("CPUs busy with others", percent, 0.05),
}
"""Readings that the text names where they differ, with the difference below which it does not; the JSON has all."""


def differing_readings(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """`power per GPU 250 W -> 310 W`, of figures that both sides have and that differ."""
    for name, (head, text, least) in READINGS.items():
        mine, other = a.get(name), b.get(name)
        if mine is not None and other is not None and abs(other - mine) >= max(AT_LEAST * abs(mine), least) and other != mine:
            yield f"{head} {text(mine)} -> {text(other)}"


def compared_effects(a: tuple[StudyRecords, pd.DataFrame], b: tuple[StudyRecords, pd.DataFrame]) -> list[Compared]:
    """How many times as fast training is with a value of a key as with the base, of keys that both studies varied, at sizes that
    both measured; the base is A's. Each study with its runs_frame. Those that do not differ have no text."""
    theirs = {(axis.key, panel.where): panel for axis in _axes(*b) for panel in axis.panels}
    pairs = [(axis, panel, theirs.get((axis.key, panel.where))) for axis in _axes(*a) for panel in axis.panels]
    return [effect for axis, mine, other in pairs if other is not None for effect in _of_panel(axis, mine, other)]


def _axes(records: StudyRecords, runs: pd.DataFrame) -> list[Axis]:
    return judged_axes(axes(runs, scaling_frame(runs, records.points, records.hold)))


def _of_panel(axis: Axis, a: AxisPanel, b: AxisPanel) -> Iterator[Compared]:
    """`at 1x4, precision fp16 is 1.26 (95 % 1.21-1.30) -> 1.04 (95 % 1.01-1.08) times as fast as fp32`"""
    theirs = {value.text: value for value in b.values}
    base = a.values[a.base].text
    for value in a.values:
        mine = a.against_base(value)
        if mine is None or value.text not in theirs or base not in theirs:
            continue
        other = b.compared(theirs[value.text], theirs[base])
        words, other_words = (f"{each.ratio:.2f}{ends_words(each, 2)}" for each in (mine, other))
        text = f"at {a.where}, {axis.name} {value.text} is {words} -> {other_words} times as fast as {base}"
        about = {"key": axis.key, "where": a.where, "value": value.text, "base": base}
        yield Compared("ratio", vars(mine), vars(other), None, None, text if _disjoint(mine, other) else "", about)


def _disjoint(a: Ratio, b: Ratio) -> bool:
    """Whether the intervals, or with few runs the ranges, have nothing in common; a single run shows no difference."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.high < b.low or b.high < a.low
