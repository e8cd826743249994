"""epochs.csv of an attempt: what each epoch of `work: train` came to, checked as step rows are, by count, checksum and sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcddp.analysis.records.rows import Columns, Rejected, RowFile, read_rows
from hpcddp.core.attempt_records import TrainingEnd
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.point import Point
from hpcddp.core.records import EPOCH_COLUMNS, MOST_LOSS_E9, epochs_file
from hpcddp.core.schema import LARGEST_INT

MAYBE_EMPTY = ("train_loss_e9", "correct", "total", "eval_loss_e9")
COLUMNS = {name: "float64" if name in MAYBE_EMPTY else "int64" for name in EPOCH_COLUMNS}

GROW = ("step", "samples", "train_ns", "elapsed_ns")
"""Columns that are more in each row than in the one before."""

LONGEST_NS = 366 * 86_400 * 10**9
"""No training takes more than a year."""

STEPS_SHARE = 1e-3
"""What steps' times may be above what passed meanwhile: events of CUDA have a pace of their own."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """An epoch as it ended; all but its rate, batch and losses are of the run so far. None was not measured."""

    epoch: int
    """1 for the first."""
    step: int
    samples: int
    train_ns: int
    """In training, evaluations left out."""
    elapsed_ns: int
    """With them."""
    lr: float
    batch: int
    train_loss: float | None
    correct: int | None
    total: int | None
    eval_loss: float | None


def read_epochs(attempt: Path, end: TrainingEnd, warnings: list[str]) -> tuple[Epoch, ...] | None:
    """All epochs of the run that `attempt` ended; None where its point trains none. Rejected where rows cannot be true."""
    if end.epoch_rows is None:
        return None
    if end.epoch_crc32 is None:
        raise Rejected("end.json lacks 'epoch_crc32'")
    rows = read_rows(RowFile(epochs_file(attempt), 0, end.epoch_rows, end.epoch_crc32), COLUMNS, warnings)
    check_epochs(rows, end.steps)
    return tuple(_epoch(dict(zip(rows, cells, strict=True))) for cells in zip(*rows.values(), strict=True))


def check_batches(epochs: Sequence[Epoch], point: Point) -> None:
    """Rejected where an epoch has another batch than the point's."""
    plan = EpochPlan.of(point, samples=0)
    for each in epochs:
        if each.batch != plan.batch_of(each.epoch - 1):
            due = plan.batch_of(each.epoch - 1)
            raise Rejected(f"epochs.csv: row {each.epoch} has batch {each.batch}: the point's is {due} then")


def check_epochs(rows: Columns, steps: int | None) -> None:
    """Rejected where rows cannot be true; `steps`: of the run."""
    count = rows["epoch"].size
    _reject(rows, "epoch", rows["epoch"] != np.arange(1, count + 1), "epochs count from 1")
    for name in GROW:
        grows = np.diff(rows[name], prepend=0) > 0
        _reject(rows, name, ~grows | (rows[name] > LARGEST_INT // 2), "it is no more than before, or too large to be true")
    _reject(rows, "elapsed_ns", rows["elapsed_ns"] > LONGEST_NS, "no training takes a year")
    slack = 10**6 + STEPS_SHARE * rows["elapsed_ns"]
    _reject(rows, "train_ns", rows["train_ns"] > rows["elapsed_ns"] + slack, "more than passed meanwhile")
    _reject(rows, "step", rows["step"] > (steps or LARGEST_INT), "the run made fewer steps")
    _reject(rows, "samples", rows["samples"] < rows["step"], "a step trains a sample at least")
    _reject(rows, "lr_e12", rows["lr_e12"] < 0, "a rate is not negative")
    _reject(rows, "batch", rows["batch"] < 1, "a batch has a sample at least")
    trained = np.diff(rows["step"], prepend=0) * rows["batch"]
    _reject(rows, "samples", np.diff(rows["samples"], prepend=0) != trained, "not that number of steps of its batch")
    for name in ("train_loss_e9", "eval_loss_e9"):
        odd = (rows[name] < 0) | (rows[name] > MOST_LOSS_E9)
        _reject(rows, name, odd, "no cross entropy is negative, nor written above a million")
    _check_evaluations(rows)


def _check_evaluations(rows: Columns) -> None:
    correct, total = rows["correct"], rows["total"]
    _reject(rows, "correct", np.isnan(correct) != np.isnan(total), "an evaluation has both counts, or none")
    _reject(rows, "correct", (correct < 0) | (correct > total), "not that many of its total")
    known = total[~np.isnan(total)]
    _reject(rows, "total", (total < 1) | (total != known[:1].sum()) & ~np.isnan(total), "all are of one evaluation set")


def _reject(rows: Columns, name: str, odd: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], why: str) -> None:
    if odd.any():
        place = int(odd.argmax())
        raise Rejected(f"epochs.csv: row {place + 1} has {name} {rows[name][place]:g}: {why}")


def _epoch(cells: dict[str, float]) -> Epoch:
    found: dict[str, Any] = {name: int(cells[name]) for name in ("epoch", "step", "samples", "train_ns", "elapsed_ns", "batch")}
    found |= {name: None if np.isnan(cells[name]) else int(cells[name]) for name in ("correct", "total")}
    for name in ("train_loss", "eval_loss"):
        found[name] = None if np.isnan(cells[f"{name}_e9"]) else float(cells[f"{name}_e9"]) / 1e9
    return Epoch(lr=float(cells["lr_e12"]) / 1e12, **found)
