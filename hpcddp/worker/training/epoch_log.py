"""epochs.csv: a row for each epoch of `work: train`, by rank 0."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.attempt_records import EvaluationResult
from hpcddp.core.records import EPOCH_COLUMNS, MOST_LOSS_E9, RowWriter, epochs_file

Row = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class EpochEnd:
    """An epoch that has ended, in the units of people; `steps` to `elapsed_ns` are of the run so far."""

    epoch: int
    """1 for the first."""
    steps: int
    samples: int
    train_ns: int
    elapsed_ns: int
    lr: float
    """Of the epoch's last step, as is the batch."""
    global_batch: int
    train_loss: float | None
    evaluation: EvaluationResult | None
    """None where the epoch was not evaluated."""


class EpochLog:
    """Rank 0's file. `earlier`: rows of the epochs before this attempt, which come first."""

    def __init__(self, attempt: Path, earlier: Iterable[Row] = ()) -> None:
        self._writer = RowWriter(epochs_file(attempt), EPOCH_COLUMNS)
        self.rows: list[Row] = []
        """All of them so far, for the next checkpoint."""
        for row in earlier:
            self._write(tuple(row))
        self._writer.flush()

    def write(self, end: EpochEnd) -> None:
        """One row, handed to the operating system at once."""
        found = end.evaluation or EvaluationResult()
        self._write(
            (
                end.epoch,
                end.steps,
                end.samples,
                end.train_ns,
                end.elapsed_ns,
                round(end.lr * 1e12),
                end.global_batch,
                _loss_cell(end.train_loss),
                found.correct,
                found.samples,
                _loss_cell(found.loss),
            )
        )
        self._writer.flush()

    def counts(self) -> tuple[int, int]:
        """How many rows there are, and the checksum of all bytes."""
        return self._writer.rows, self._writer.crc32

    def close(self) -> None:
        """No further epoch ends."""
        self._writer.__exit__(None, None, None)

    def _write(self, row: Row) -> None:
        self._writer.row(row)
        self.rows.append(row)


def _loss_cell(loss: float | None) -> int | None:
    return min(round(loss * 1e9), MOST_LOSS_E9) if loss is not None and math.isfinite(loss * 1e9) else None
