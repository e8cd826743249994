"""How accurate the runs of a point are, and what their loss was: medians over runs, never of unlike amounts of training; and how
long each size takes to an accuracy, from the epochs of all trainings.
"""

from __future__ import annotations

import operator
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean
from typing import Any

import pandas as pd

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.effects import ends_of, ratio, spread
from hpcddp.analysis.study.frames import typed_frame, unit_hours
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.util.wording import accuracy_words

ACCURACY_COLUMNS = {
    "eval_n": "Int64",
    "accuracy": "Float64",
    "accuracy_low": "Float64",
    "accuracy_high": "Float64",
    "accuracy_interval": "string",
    "eval_correct": "Float64",
    "eval_samples": "Int64",
    "eval_loss": "Float64",
    "samples_trained": "Int64",
    "samples_trained_most": "Int64",
    "loss_n": "Int64",
    "loss_start": "Float64",
    "loss_end": "Float64",
    "loss_steps": "Int64",
}
"""Medians over the `eval_n` runs of a point that were evaluated, with and without the communication hook, which trains the same
parameters; `eval_correct` of `eval_samples` is the accuracy's exact count, half a sample where two runs are in the middle. NA
where runs counted different numbers of samples. `samples_trained` is what each of them trained; where they differ the least,
and `samples_trained_most` is the most. `loss_start` and `loss_end` are means over the first and last `loss_steps` steps, of
the `loss_n` runs of which they are known."""


@dataclass(frozen=True)
class Evaluated:
    """The runs of a point that were evaluated, on equally many samples; at least one."""

    shares: tuple[Fraction, ...]
    """Of each run, correct / samples."""
    samples: int
    """Of the evaluation set."""
    trained: tuple[int | None, ...]
    """Samples that each run trained before it."""

    @property
    def share(self) -> Fraction:
        return statistics.median(self.shares)

    @property
    def words(self) -> str:
        """`97.22 % (9,722 of 10,000)`"""
        return accuracy_words(float(self.share), float(self.share * self.samples), self.samples)


def evaluated(runs: pd.DataFrame) -> Evaluated | None:
    """None where no run was evaluated, or runs counted different numbers of samples."""
    runs = runs[runs["evaluated"] & runs["eval_samples"].notna() & runs["eval_correct"].notna()]
    of = set(runs["eval_samples"]) - {0}
    if len(of) != 1:
        return None
    samples = int(of.pop())
    trained = tuple(None if pd.isna(each) else int(each) for each in runs["samples_trained"])
    return Evaluated(tuple(Fraction(int(correct), samples) for correct in runs["eval_correct"]), samples, trained)


def evaluated_epochs(runs: Sequence[Run]) -> dict[int, Evaluated]:
    """Samples trained -> accuracies there, of trainings: where every one of these runs was evaluated, on one evaluation set."""
    counts = [
        {each.samples: (each.correct, each.total) for each in run.epochs or () if each.correct is not None and each.total}
        for run in runs
    ]
    common = set.intersection(*map(set, counts)) if counts else set()
    found = {}
    for samples in sorted(common):
        of = {total for _, total in (each[samples] for each in counts)}
        if len(of) == 1:
            shares = tuple(Fraction(correct, total) for correct, total in (each[samples] for each in counts))
            found[samples] = Evaluated(shares, of.pop(), (samples,) * len(counts))
    return found


def point_accuracy(runs: pd.DataFrame) -> dict[str, Any]:
    """ACCURACY_COLUMNS of a point's runs that count."""
    found = evaluated(runs)
    return (_accuracy(found) | {"eval_loss": _median(runs.loc[runs["evaluated"], "eval_loss"])} if found else {}) | _losses(runs)


def _accuracy(found: Evaluated) -> dict[str, Any]:
    low, high, interval = spread(found.shares)
    known = [each for each in found.trained if each is not None]
    trained = sorted(known) if len(known) == len(found.trained) else [None]
    return {
        "accuracy": float(found.share),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_interval": interval,
        "eval_n": len(found.shares),
        "eval_correct": float(found.share * found.samples),
        "eval_samples": found.samples,
        "samples_trained": trained[0],
        "samples_trained_most": trained[-1] if trained[-1] != trained[0] else None,
    }


def _losses(runs: pd.DataFrame) -> dict[str, Any]:
    steps = runs["loss_steps"].max()
    if pd.isna(steps):
        return {}
    alike = runs[(runs["loss_steps"] == steps).fillna(False)]
    return {"loss_n": len(alike), **{name: _median(alike[name]) for name in ("loss_start", "loss_end")}, "loss_steps": steps}


def median_losses(runs: pd.DataFrame) -> tuple[float, float, int] | None:
    """Of a point's runs, at the start and at the end, over so many steps each; None where either is unknown."""
    found = _losses(runs)
    if found.get("loss_start") is None or found.get("loss_end") is None:
        return None
    return found["loss_start"], found["loss_end"], int(found["loss_steps"])


def _median(values: pd.Series[Any]) -> float | None:
    return None if values.isna().any() or values.empty else float(values.median())


@dataclass(frozen=True)
class Gap:
    """By how much a median accuracy is above another: 0.01 is one percentage point; `kind` as of effects.Ratio."""

    gap: float
    low: float | None
    high: float | None
    kind: str | None

    @property
    def differs(self) -> bool | None:
        """Whether an interval leaves out 0; None where there is no interval."""
        return None if self.kind != "95 %" or self.low is None or self.high is None else not self.low <= 0 <= self.high


def gap(a: Sequence[Fraction], b: Sequence[Fraction]) -> Gap:
    """Median of `a` - median of `b`, at least one each, with the interval that effects.ratio has for a ratio."""
    middle = float(statistics.median(a) - statistics.median(b))
    return Gap(middle, *ends_of(middle, a, b, operator.sub))


def same_training(*groups: Evaluated) -> bool:
    """Whether all these runs trained one and the same known number of samples, and were evaluated on as many."""
    trained = {each for group in groups for each in group.trained}
    return len(trained) == 1 and None not in trained and len({group.samples for group in groups}) == 1


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
    return typed_frame(rows, EPOCHS_COLUMNS)


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
"""Baselines of speedups: one GPU, and one full node."""

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
    series = scaling.groupby("series", sort=False)
    return typed_frame((row for _, points in series for row in _of_series(records, runs, points)), TARGET_COLUMNS)


def _of_series(records: StudyRecords, runs: pd.DataFrame, series: pd.DataFrame) -> Iterator[dict[str, Any]]:
    members = [(row, found) for _, row in series.iterrows() if (found := _runs_of(records, runs, row))]
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
    best = [max((share for each in run.epochs or () if (share := _share(each)) is not None), default=None) for run in runs]
    known = [share for share in best if share is not None]
    return (min(known), BY_ALL) if known and len(known) == len(best) else (None, BY_ALL)


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
