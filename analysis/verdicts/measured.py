"""Advice that a study has measured itself: the value of a key at which it trains faster, and from which runs that follows."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import pays, stops_paying, times_words
from hpcddp.analysis.verdicts.context import Case, PointRow, run_numbers
from hpcddp.analysis.verdicts.settings import CORES, WORKERS, Advice, Set, phrase

WAITING = (WORKERS, CORES)
"""Keys against waiting for data, and against too few cores."""

EXCHANGING = ("workload.ddp.bucket_cap_mb", "workload.ddp.compression", "workload.batch_per_gpu", "global_batch")
"""Keys against communication."""

OF_SHARDS = ("workload.parallel", "workload.fsdp.reshard_after_forward", "workload.batch_per_gpu", "global_batch")
"""The same where parameters are sharded."""

SET_AS = {"global_batch": "workload.global_batch"}


def measured_advice(case: Case, rows: Sequence[PointRow], keys: Sequence[str]) -> Advice:
    """A setting with the gain and its runs, at the largest of the points where one of the keys was varied; empty where
    no value of them is faster for sure."""
    found = (
        _faster(case, axis, panel, row)
        for row in reversed(rows)
        for key in keys
        for axis in case.effects
        if axis.key == key and not axis.joint
        for panel in axis.panels
    )
    return next((each for each in found if each), ())


def _faster(case: Case, axis: Axis, panel: AxisPanel, row: PointRow) -> Advice:
    mine = next((value for value in panel.values if _is_of(value, row)), None)
    better = panel.values[stops_paying(panel)]
    if mine is None or better.value is None or not panel.is_sure or not pays(panel, better, mine):
        return ()
    gain, runs = times_words(panel.compared(better, mine)), _runs(case, better)
    setting = Set({SET_AS.get(axis.key, axis.key): better.value})
    return phrase(setting, f": at {panel.where} it is {gain} as fast as {mine.text} ({runs} of {better.point['label']})")


def _is_of(value: AxisValue, row: PointRow) -> bool:
    return all(value.point[name] == row[name] for name in ("series", "nodes", "gpus_per_node"))


def _runs(case: Case, value: AxisValue) -> str:
    labels = str(value.point["label"]).split(" + ")
    runs: list[Run] = [run for run in case.counting if run.label in labels]
    return run_numbers(runs)
