"""Epochs of all trainings as a table, and how long each size takes to an accuracy: time, epochs, node hours, speedup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean
from typing import Any

import pandas as pd

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.runs.intervals import spread
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.costs import unit_hours
from hpcddp.analysis.study.effects import ratio
from hpcddp.analysis.study.load import StudyRecords

_SIZE = {"series": "string", "nodes": "Int64", "gpus_per_node": "Int64", "gpus": "Int64", "device": "string"}

EPOCHS_COLUMNS = {
    "label": "string",
    "run": "Int64",
    **_SIZE,
    **dict.fromkeys(("epoch", "step", "samples"), "Int64"),
    **dict.fromkeys(("train_s", "elapsed_s", "node_h", "gpu_h", "lr"), "Float64"),
    "batch": "Int64",
    "train_loss": "Float64",
    **dict.fromkeys(("correct", "total"), "Int64"),
    **dict.fromkeys(("accuracy", "eval_loss"), "Float64"),
}
"""An epoch of a run that counts; all but `lr`, `batch` and the losses are of the run so far. Node and GPU hours are of training
alone (`train_s`). NA where the epoch was not evaluated."""


def epochs_frame(records: StudyRecords, runs: pd.DataFrame) -> pd.DataFrame:
    """Every epoch of the runs that count; `runs`: rows of runs_frame, in the order of the records."""
    rows = [
        {**{name: row[name] for name in _SIZE}, **_epoch_row(run, each, row)}
        for run, row in zip(records.runs, runs.to_dict(orient="records"), strict=True)
        if run.state == "counts"
        for each in run.epochs or ()
    ]
    return pd.DataFrame(rows, columns=list(EPOCHS_COLUMNS)).astype(EPOCHS_COLUMNS)


def _epoch_row(run: Run, each: Epoch, row: dict[Any, Any]) -> dict[str, Any]:
    train_s = each.train_ns / 1e9
    return {
        **{"label": run.label, "run": run.run, "epoch": each.epoch, "step": each.step, "samples": each.samples},
        **{"train_s": train_s, "elapsed_s": each.elapsed_ns / 1e9, "node_h": unit_hours(row["nodes"], train_s)},
        "gpu_h": None if row["device"] == "cpu" else unit_hours(row["gpus"], train_s),
        **{"lr": each.lr, "batch": each.batch, "train_loss": each.train_loss, "correct": each.correct, "total": each.total},
        "accuracy": each.correct / each.total if each.correct is not None and each.total else None,
        "eval_loss": each.eval_loss,
    }


BASES = ("1gpu", "1node")

TARGET_COLUMNS = {
    **_SIZE,
    "label": "string",
    "target": "Float64",
    "target_of": "string",
    "n": "Int64",
    "reached": "Int64",
    **dict.fromkeys(("epochs", "samples", "train_s", "train_s_low", "train_s_high"), "Float64"),
    "interval": "string",
    **dict.fromkeys(("node_h", "gpu_h"), "Float64"),
    **{
        f"{what}_{base}{end}": "string" if end == "_interval" else "Float64"
        for base in BASES
        for what, ends in (("speedup", ("", "_low", "_high", "_interval")), ("throughput", ("",)))
        for end in ends
    },
}
"""What it takes to reach `target`, a share of the evaluation set, by size: medians over `n` runs, of which `reached` did. A run
reached it at the end of the first evaluated epoch that is at least as accurate. Times are of training (evaluations left out);
NA where half of the runs or more did not reach it, and no interval where any did not. Node and GPU hours are means, known where
all runs reached it. `speedup_..` is the baseline's time /
the size's time; `throughput_..` is the speedup of samples per second beside it. `target_of`: GIVEN or BY_ALL."""

GIVEN, BY_ALL = "measure.target_accuracy", "the highest that all runs reached"


@dataclass(frozen=True)
class _Reached:
    """The epochs at whose end each run of a size reached the target; None: it did not."""

    row: Any
    ends: tuple[Epoch | None, ...]

    @property
    def there(self) -> list[Epoch]:
        return [end for end in self.ends if end is not None]

    @property
    def known(self) -> bool:
        """Whether the median is: more than half of the runs reached it."""
        return 2 * len(self.there) > len(self.ends)

    @property
    def all_there(self) -> bool:
        return len(self.there) == len(self.ends)

    def median(self, name: str) -> Fraction:
        """Of epochs, samples or ns, where a run that did not reach it takes longer than any that did."""
        values = sorted(Fraction(getattr(end, name)) for end in self.there)
        count = len(self.ends)
        low, high = values[(count - 1) // 2], values[count // 2]
        return (low + high) / 2

    @property
    def times_s(self) -> list[Fraction]:
        return [Fraction(end.train_ns, 10**9) for end in self.there]


def targets_frame(records: StudyRecords, runs: pd.DataFrame, scaling: pd.DataFrame) -> pd.DataFrame:
    """TARGET_COLUMNS of every size of every series that trained epochs; `scaling`: the shown rows of scaling_frame."""
    rows = [row for _, series in scaling.groupby("series", sort=False) for row in _of_series(records, runs, series)]
    return pd.DataFrame(rows, columns=list(TARGET_COLUMNS)).astype(TARGET_COLUMNS)


def _of_series(records: StudyRecords, runs: pd.DataFrame, series: pd.DataFrame) -> Iterator[dict[str, Any]]:
    members = [(row, _runs_of(records, runs, row)) for _, row in series.iterrows()]
    members = [(row, found) for row, found in members if found]
    target, of = target_of([run for _, found in members for run in found])
    if target is None:
        return
    sizes = [_Reached(row, tuple(reached(run.epochs or (), target) for run in found)) for row, found in members]
    for size in sizes:
        yield {**_size_row(size), "target": float(target), "target_of": of, **_against(size, sizes)}


def _runs_of(records: StudyRecords, runs: pd.DataFrame, row: Any) -> list[Run]:
    keys = runs[["series", "nodes", "gpus_per_node"]].itertuples(index=False, name=None)
    this = (row["series"], row["nodes"], row["gpus_per_node"])
    return [run for run, key in zip(records.runs, keys, strict=True) if run.state == "counts" and run.epochs and key == this]


def target_of(runs: Sequence[Run]) -> tuple[Fraction | None, str]:
    """The accuracy to reach, and where it is from; None where a run was never evaluated."""
    wanted = {run.point.measure.target_accuracy for run in runs if run.point}
    if len(wanted) == 1 and (target := wanted.pop()) is not None:
        return Fraction(str(target)), GIVEN
    best = [max(_shares(run.epochs or ()), default=None) for run in runs]
    known = [share for share in best if share is not None]
    return (min(known), BY_ALL) if known and len(known) == len(best) else (None, BY_ALL)


def _shares(epochs: Sequence[Epoch]) -> list[Fraction]:
    return [share for each in epochs if (share := _share(each)) is not None]


def _share(epoch: Epoch) -> Fraction | None:
    return None if epoch.correct is None or not epoch.total else Fraction(epoch.correct, epoch.total)


def reached(epochs: Sequence[Epoch], target: Fraction) -> Epoch | None:
    """The first evaluated epoch that is at least as accurate; None where none is."""
    return next((each for each in epochs if (share := _share(each)) is not None and share >= target), None)


def _size_row(size: _Reached) -> dict[str, Any]:
    row = size.row
    found: dict[str, Any] = {name: row[name] for name in (*_SIZE, "label")}
    found |= {"n": len(size.ends), "reached": len(size.there)}
    if not size.known:
        return found
    train_s = float(size.median("train_ns") / 10**9)
    low, high, interval = spread(size.times_s) if size.all_there else (None, None, None)
    billed_s = float(mean(size.times_s)) if size.all_there else None
    return found | {
        **{"epochs": float(size.median("epoch")), "samples": float(size.median("samples")), "train_s": train_s},
        **{"train_s_low": low, "train_s_high": high, "interval": interval},
        "node_h": None if billed_s is None else unit_hours(row["nodes"], billed_s),
        "gpu_h": None if billed_s is None or row["device"] == "cpu" else unit_hours(row["gpus"], billed_s),
    }


def _against(size: _Reached, sizes: Sequence[_Reached]) -> dict[str, Any]:
    """Speedups over one GPU and over one full node, where these reached the target."""
    found: dict[str, Any] = {}
    for name, gpus in zip(BASES, (1, int(size.row["full_node_gpus"])), strict=True):
        base = next((each for each in sizes if (each.row["nodes"], each.row["gpus_per_node"]) == (1, gpus)), None)
        if base is None or not base.known or not size.known or size.row["gpus"] < gpus:
            continue
        found[f"throughput_{name}"] = size.row[f"speedup_{name}"]
        found[f"speedup_{name}"] = float(base.median("train_ns") / size.median("train_ns"))
        if base is not size and base.all_there and size.all_there:
            ends = ratio(base.times_s, size.times_s)
            found |= {f"speedup_{name}_low": ends.low, f"speedup_{name}_high": ends.high, f"speedup_{name}_interval": ends.kind}
    return found
