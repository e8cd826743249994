"""Advice that a study has measured itself: the value of a key at which it is faster, and from which runs that follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import fastest, pays, stops_paying, times_words, too_few
from hpcddp.analysis.study.readings import whatever_input
from hpcddp.analysis.study.series import differing, full_names
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts.context import CORES, WORKERS, Advice, Case, PointRow, Set, phrase, run_numbers

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
"""By how much more loaders by themselves must give with another value for it to be advised: two measurements of equal settings
stay within it."""


def measured_advice(case: Case, rows: Sequence[PointRow], keys: Sequence[str]) -> Advice:
    """A setting with the gain and its runs, at the largest of the points where one of the keys was varied; empty where
    no value of them is faster for sure."""
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
                return f"keep {axis.name} {mine.text}, the fastest of the values measured at {panel.where}"
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
    gave = f"{quantity(best.rate)} samples/s instead of {quantity(mine.rate)}"
    return phrase(Set({key: best.value}), f": loaders by themselves give {gave} ({_runs(case, best)} of {best.point['label']})")


def fastest_loading(case: Case, row: PointRow) -> tuple[str, float] | None:
    """Of the points that only load the row's data at its layout the fastest: what sets it apart, and its samples/s; None where
    there are fewer than two."""
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
            mine = next((value for value in panel.values if _is_of(value, row)), None)
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
    words = f": at {panel.where} it is {gain} as fast as {mine.text} ({runs} of {better.point['label']}){few}"
    return phrase(Set({SET_AS.get(axis.key, axis.key): better.value}), words)


def _is_of(value: AxisValue, row: PointRow) -> bool:
    return all(value.point[name] == row[name] for name in ("series", "nodes", "gpus_per_node"))


def _runs(case: Case, value: AxisValue) -> str:
    labels = str(value.point["label"]).split(" + ")
    runs: list[Run] = [run for run in case.counting if run.label in labels]
    return run_numbers(runs)
