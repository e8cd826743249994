"""What a verdict is, and what the judging functions are given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.accuracy import Evaluated, evaluated
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import fastest, pays, stops_paying, times_words, too_few
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.readings import whatever_input
from hpcddp.analysis.study.series import differing, full_names
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.point import Point
from hpcddp.core.run_root import spans

WORKERS, CORES = "workload.loader_workers_per_rank", "layout.physical_cores_per_rank"
HOSTS = "slurm.exclude"
"""The key whose values are hosts, and add up."""


@dataclass(frozen=True)
class Set:
    """Values of keys of a sweep, as a piece of advice: `--set KEY=VALUE`."""

    values: Mapping[str, object]


Advice = str | tuple[str | Set, ...]
"""What to do: words with settings among them. verdicts.py makes one text of it."""


def phrase(*pieces: Advice | Set) -> tuple[str | Set, ...]:
    """One after the other."""
    return tuple(part for piece in pieces for part in ((piece,) if isinstance(piece, str | Set) else piece) if part != "")


WRONG, DOUBTFUL, LIMITED, INCOMPLETE = 3.0, 2.0, 1.0, 0.0
"""Weights: wrong results come first, then doubtful ones, what limits speed, what is missing; a share below 1 is added."""

INPUT_SHARE = 0.10
"""Share of the step from which on waiting for data counts: more than a loader's jitter, or DDP on the first node, costs."""

AGAIN = "Then delete those runs' folders (`POINT/rN`) and run `hpcddp submit SWEEP.yaml` again (it skips runs that are `done`)."
"""How to have a run measured again that is done."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A finding about a study."""

    name: str = ""
    """A key of verdicts.ALL, which is put in there."""
    where: str
    """`at every point from 1x2 on`, nodes x GPUs per node; `on r007`."""
    evidence: str
    """Sentences with numbers."""
    brief: str = ""
    """The same in a few words, where its first sentence says more: `38-41 % of the step`."""
    todo: Advice = ""
    """The next thing to do, with the settings or the command where there are any."""
    advice: str = ""
    """The same in words, once it is settled with that of the other verdicts."""
    numbers: Mapping[str, float]
    runs: tuple[str, ...]
    """`r2 of n01-g4-b32-3fa9c1d2e07b`"""
    weight: float


OF_POINT = ("series", "nodes", "gpus_per_node")
"""What a point of a study is known by."""

PointRow = pd.Series
"""A row of the scaling table."""


@dataclass(frozen=True)
class Case:
    """One study; tables as Findings has them."""

    records: StudyRecords
    table: pd.DataFrame
    """Its runs."""
    points: pd.DataFrame
    """The scaling table's rows that are shown."""
    names: Mapping[str, str]
    limits: Mapping[tuple[str, int, int], Mapping[str, float]]
    """Rates by kind of input, as readings.rates_by_input has them."""
    stragglers: pd.DataFrame
    buckets: pd.DataFrame
    fits: pd.DataFrame
    effects: Sequence[Axis] = ()
    """What each key changes, of which points of one size differ."""
    loading: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=OF_POINT))
    """The scaling table's rows with `input: io`, shown or not."""

    @cached_property
    def series(self) -> list[tuple[str, pd.DataFrame]]:
        """What tells each series from the others (`` for a single one) and its points, by GPUs and nodes."""
        return [(self.names[str(key)], group) for key, group in self.points.groupby("series", sort=False)]

    @property
    def is_of_one_size(self) -> bool:
        """Whether no point has another layout: nothing is said of how it scales."""
        sizes = {(point.layout.nodes, point.layout.gpus_per_node) for point in self.records.points if point.work != "comm"}
        return len(sizes) == 1

    @property
    def is_of_keys(self) -> bool:
        """Whether keys vary in the study, and its size does not."""
        return bool(self.effects) and self.is_of_one_size

    @property
    def several(self) -> list[tuple[str, pd.DataFrame]]:
        """Series of which the report says how they scale: those of several layouts; a single series in any case."""
        wide = [(name, group) for name, group in self.series if len(group) > 1]
        return [(name if len(wide) > 1 else "", group) for name, group in wide or self.series[:1]]

    @property
    def by_itself(self) -> bool:
        """Whether all runs are of a script that was started without a sweep."""
        points = self.records.points
        return any(point.script for point in points) and all(point.own_loop for point in points)

    @property
    def counting(self) -> list[Run]:
        """Training runs that count."""
        return [run for run in self.records.runs if run.state == "counts" and run.trains]

    @cached_property
    def _by_point(self) -> dict[tuple[Any, ...], list[Run]]:
        found: dict[tuple[Any, ...], list[Run]] = {}
        keys = self.table[list(OF_POINT)].itertuples(index=False, name=None)
        for key, run in zip(keys, self.records.runs, strict=True):
            if run.state == "counts" and run.trains:
                found.setdefault(key, []).append(run)
        return found

    @cached_property
    def exchanges(self) -> dict[Hashable, int]:
        """RunKey -> all-reduces per step, of runs with the communication hook."""
        return dict(self.buckets.groupby(["label", "run"])["bucket"].nunique().items())

    def runs_of(self, row: PointRow) -> list[Run]:
        """The runs of a point that count."""
        return self._by_point.get(tuple(row[name] for name in OF_POINT), [])

    def evaluated(self, row: PointRow) -> Evaluated | None:
        """The accuracies of the row's runs."""
        keys = {tuple(run.key) for run in self.runs_of(row)}
        of_row = [key in keys for key in zip(self.table["label"], self.table["run"], strict=True)]
        return evaluated(self.table[of_row])

    def point_of(self, row: PointRow) -> Point:
        """One of the points that the row summarizes: they differ only in keys that series ignore."""
        point = self.runs_of(row)[0].point
        assert point is not None
        return point


T = TypeVar("T")


@dataclass(frozen=True)
class FoundPoints(Generic[T]):
    """Points of one series of which something was found, each with its value."""

    series: pd.DataFrame
    where: str
    rows: list[PointRow]
    values: list[T]
    runs: list[Run]
    """Runs of these points that count."""

    def verdict(
        self, *, evidence: str, todo: Advice, numbers: Mapping[str, float], weight: float, runs: Sequence[Run] | None = None
    ) -> Verdict:
        """Of these points; `runs`: those that show it, of all of theirs."""
        names = run_names(self.runs if runs is None else runs)
        return Verdict(where=self.where, evidence=evidence, todo=todo, numbers=numbers, weight=weight, runs=names)


def found_points(case: Case, judge: Callable[[Case, PointRow], T | None]) -> Iterator[FoundPoints[T]]:
    """By series, the points of which `judge` finds something; series without such a point are left out."""
    for name, series in case.series:
        found = [(row, value) for _, row in series.iterrows() if (value := judge(case, row)) is not None]
        if found:
            rows = [row for row, _ in found]
            runs = [run for row in rows for run in case.runs_of(row)]
            yield FoundPoints(series, where(rows, series, name), rows, [value for _, value in found], runs)


def step_s(row: Mapping[str, Any] | PointRow) -> float:
    """The step of the runs that the breakdown comes from, seconds."""
    return float(row["step_hook_s"] if pd.notna(row["step_hook_s"]) else row["step_s"])


def larger_batch(case: Case, row: PointRow) -> Set:
    """Twice the point's, by the key that its sweep holds."""
    held = case.records.hold
    return Set({f"workload.{held}": 2 * int(row[held])})


def data_wait(row: Mapping[str, Any] | PointRow) -> float | None:
    """Share of the step that waits for data, of full training and from INPUT_SHARE on: efficiency says nothing of it."""
    if row["input"] != "full" or pd.isna(row["data_wait_s"]):
        return None
    share = float(row["data_wait_s"]) / step_s(row)
    return share if share >= INPUT_SHARE else None


def layout(row: PointRow) -> str:
    """`16x4`"""
    return f"{row['nodes']}x{row['gpus_per_node']}"


def where(rows: Sequence[PointRow], series: pd.DataFrame, name: str) -> str:
    """Points of a series by name, or `every point from .. on`; with `name`, which distinguishes the series from others."""
    labels = [layout(row) for row in rows]
    last = [layout(row) for _, row in series.iterrows()][-len(labels) :]
    if len(labels) == len(series) > 1:
        found = "at every point"
    elif labels == last and len(labels) > 2:
        found = f"at every point from {labels[0]} on"
    else:
        found = f"at {listed(labels)}"
    return f"{found} ({name})" if name else found


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; the first four of more."""
    if len(words) > 5:
        return f"{', '.join(words[:4])} and {len(words) - 4} more"
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def run_numbers(runs: Sequence[Run]) -> str:
    """`run r3`, `runs r1-r6`, `runs r1, r4-r6`."""
    numbers = {run.run for run in runs}
    words = [f"r{first}-r{last}" if last > first else f"r{first}" for first, last in spans(numbers)]
    return f"run{'s' if len(numbers) > 1 else ''} {', '.join(words)}"


def by_slurm(run: Run) -> bool:
    """Whether Slurm placed it: only then it has options that leave a host out."""
    return run.signals is not None and run.signals.slurm


def run_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Names of the runs, each once."""
    return tuple(dict.fromkeys(run.name for run in runs))


def span(values: Sequence[float], unit: str = " %", scale: float = 100) -> str:
    """`61-74 %`; one number where both ends print the same."""
    low, high = (f"{scale * value:.0f}" for value in (min(values), max(values)))
    return f"{low}{unit}" if low == high else f"{low}-{high}{unit}"


WAITING = (WORKERS, CORES)
"""Keys against waiting for data, and against too few cores."""

OF_LOADERS = (WORKERS, "workload.data.decoder")
"""Keys of loaders whose values load the same samples in the same batches."""

EXCHANGING = ("workload.ddp.bucket_cap_mb", "workload.ddp.compression", "workload.batch_per_gpu", "global_batch")
"""Keys against communication."""

OF_SHARDS = ("workload.parallel", "workload.fsdp.reshard_after_forward", "workload.batch_per_gpu", "global_batch")
"""The same where parameters are sharded."""

SET_AS = {"global_batch": "workload.global_batch"}

FASTER = 0.1
"""By how much more loaders must give with another value for it to be advised: two measurements of one stay within it."""


def measured_advice(case: Case, rows: Sequence[PointRow], keys: Sequence[str]) -> Advice:
    """The setting with its gain and runs, at the largest point where a key was varied; empty where none is surely faster."""
    found = (_faster(case, *varied) for row in reversed(rows) for varied in _varied(case, row, keys))
    return next((each for each in found if each), ())


def unless_slower(case: Case, rows: Sequence[PointRow], advice: Advice) -> Advice:
    """The advice, but of a key's measured values the fastest in place of one that gave less there."""
    settings = [piece.values for piece in phrase(advice) if isinstance(piece, Set) and len(piece.values) == 1]
    for key, value in (pair for values in settings for pair in values.items()):
        for axis, panel, mine in (varied for row in reversed(rows) for varied in _varied(case, row, (key,))):
            best = fastest(panel.values)
            if best.value == value or value not in [each.value for each in panel.values]:
                continue
            if best is mine:
                return f"Keep {axis.name} {mine.text}. It is the fastest of the values measured at {panel.where}."
            return _setting(case, axis, panel, best, mine)
    return advice


def loading_row(case: Case, row: PointRow) -> PointRow | None:
    """The row of the same series and layout that only loads; None where there is none."""
    series = whatever_input(row["series"])
    return next((each for each in _loading_at(case, row) if whatever_input(each["series"]) == series), None)


def loading_advice(case: Case, row: PointRow) -> Advice:
    """The single change of its loaders with which most was loaded at the row's layout; empty where none gives FASTER more."""
    loading = loading_row(case, row)
    varied = [] if loading is None else list(_varied(case, loading, OF_LOADERS))
    pairs = [(axis.key, fastest(panel.values), mine) for axis, panel, mine in varied]
    key, best, mine = max(pairs, key=lambda pair: pair[1].rate, default=("", None, None))
    if best is None or mine is None or best.rate < (1 + FASTER) * mine.rate:
        return ()
    reach = f"{quantity(best.rate)} samples/s instead of {quantity(mine.rate)}"
    words = f". Loaders alone then reach {reach} ({_runs(case, best)} of {best.point['label']})."
    return phrase("Load with ", Set({key: best.value}), words)


def fastest_loading(case: Case, row: PointRow) -> tuple[str, float] | None:
    """Of the points that only load the row's data at its layout: what sets the fastest apart, its samples/s; None below two."""
    data = case.point_of(row).workload.data.name
    rows = [each for each in _loading_at(case, row) if case.point_of(each).workload.data.name == data]
    if len(rows) < 2:
        return None
    best = max(rows, key=lambda each: float(each["samples_per_s"]))
    return full_names(differing([each["series"] for each in rows]))[best["series"]], float(best["samples_per_s"])


def _loading_at(case: Case, row: PointRow) -> list[PointRow]:
    rows = case.loading
    is_there = (rows["nodes"] == row["nodes"]) & (rows["gpus_per_node"] == row["gpus_per_node"])
    return [each for _, each in rows[is_there].iterrows()]


def _varied(case: Case, row: PointRow, keys: Sequence[str]) -> Iterator[tuple[Axis, AxisPanel, AxisValue]]:
    """Where one of the keys was varied at the row, in the order of the keys, with the row's own value."""
    for axis in (axis for key in keys for axis in case.effects if axis.key == key and not axis.joint):
        for panel in axis.panels:
            mine = next((value for value in panel.values if all(value.point[name] == row[name] for name in OF_POINT)), None)
            if mine is not None:
                yield axis, panel, mine


def _faster(case: Case, axis: Axis, panel: AxisPanel, mine: AxisValue) -> Advice:
    better = panel.values[stops_paying(panel)]
    if better.value is None or not panel.is_sure or not pays(panel, better, mine):
        return ()
    return _setting(case, axis, panel, better, mine)


def _setting(case: Case, axis: Axis, panel: AxisPanel, better: AxisValue, mine: AxisValue) -> Advice:
    gain, runs = times_words(panel.compared(better, mine)), _runs(case, better)
    few = too_few(panel.values) if panel.p is None else ""
    words = f". At {panel.where}, throughput is {gain} that with {mine.text} ({runs} of {better.point['label']}).{few}"
    return phrase("Use ", Set({SET_AS.get(axis.key, axis.key): better.value}), words)


def _runs(case: Case, value: AxisValue) -> str:
    labels = str(value.point["label"]).split(" + ")
    runs: list[Run] = [run for run in case.counting if run.label in labels]
    return run_numbers(runs)
