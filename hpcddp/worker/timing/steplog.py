"""Writes a rank's step and bucket rows into their files while it trains; and whether the timed ones follow without a gap."""

from __future__ import annotations

import contextlib
import csv
import itertools
import math
import time
from array import array
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from hpcddp.core.records import AFTER_PAUSE, BUCKET_COLUMNS, STEP_COLUMNS, WARMUP, RowWriter, buckets_file, steps_file
from hpcddp.worker.timing.steptimer import StepTimer, TimedStep

AT_ONCE = 16
"""Rows of short steps are written together: code that has just run is several times faster than code that training pushed out of
the processor's caches (5 against 30 us a row beside the MNIST CNN)."""

AT_LEAST_EVERY_S = 0.5


class StepLog:
    """`buckets`: whether a communication hook times the all-reduces."""

    def __init__(self, timer: StepTimer, attempt: Path, rank: int, *, buckets: bool) -> None:
        self.timer = timer
        self.times_ns = array("q")
        """Totals of the steps written so far."""
        self.loss_first: float | None = None
        self.loss_last: float | None = None
        """Of this attempt's steps written so far; None where nothing was trained."""
        self.loss_sum = 0.0
        """Of the steps written since it was last set, which an epoch's end does."""
        self.not_finite: tuple[int, float] | None = None
        """The first step whose loss is infinite or no number, and that loss; None while there is none."""
        self._write_at = 0.0
        self._steps = RowWriter(steps_file(attempt, rank), STEP_COLUMNS)
        self._buckets = RowWriter(buckets_file(attempt, rank), BUCKET_COLUMNS) if buckets else None

    def write_finished(self) -> None:
        """Writes the rows of finished steps, when enough are there or half a second is over; never waits for the device."""
        now = time.monotonic()
        if self.timer.waiting >= AT_ONCE or now >= self._write_at:
            self._write_at = now + AT_LEAST_EVERY_S
            self._write(self.timer.finished())

    def pause(self) -> None:
        """Hands everything so far to the operating system; waits for it. StepTimer.restart ends the pause. A checkpoint comes
        after a pause: rows of steps that it holds must outlive a rank that is killed."""
        self._write(self.timer.drain())
        for writer in (self._steps, self._buckets):
            if writer:
                writer.flush()

    def counts(self) -> dict[str, int]:
        """Rows and checksums of the files, for end.json; final once the log is closed."""
        found = {"rows": self._steps.rows, "crc32": self._steps.crc32}
        if self._buckets:
            found |= {"bucket_rows": self._buckets.rows, "bucket_crc32": self._buckets.crc32}
        return found

    def _write(self, steps: Iterable[TimedStep]) -> None:
        for step in steps:
            self._steps.row(step.row)
            self.times_ns.append(step.total_ns)
            if step.loss is not None:
                self._note_loss(step.row[0] or 0, step.loss)
            if self._buckets:
                for bucket in step.buckets:
                    self._buckets.row(bucket)

    def _note_loss(self, step: int, loss: float) -> None:
        self.loss_first = loss if self.loss_first is None else self.loss_first
        self.loss_last = loss
        self.loss_sum += loss
        if self.not_finite is None and not math.isfinite(loss):
            self.not_finite = step, loss

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.pause()
        elif not isinstance(error, OSError):  # a disk that has failed is not tried again
            with contextlib.suppress(RuntimeError):  # a device that has failed does not say how far it came
                self._write(self.timer.finished())
        for writer in (self._steps, self._buckets):
            if writer:
                writer.__exit__(kind, error, trace)


Row = dict[str, int]


def first_break(attempt: Path, rank: int) -> str | None:
    """The first place where the rank's timed rows do not follow each other, in words; None where they do. A step begins where the
    one before it ended, to the nanosecond, unless it is flagged as the first after a pause."""
    with steps_file(attempt, rank).open(encoding="utf-8", newline="") as lines:
        rows = ({name: int(row[name]) for name in ("step", "flags", "start_ns", "total_ns")} for row in csv.DictReader(lines))
        breaks = (_break(before, after) for before, after in itertools.pairwise(rows))
        return next((found for found in breaks if found), None)


def _break(before: Row, after: Row) -> str | None:
    if before["flags"] & WARMUP:
        return None
    if after["step"] != before["step"] + 1:
        return f"step {before['step']} is followed by step {after['step']}"
    if after["flags"] & WARMUP:
        return f"step {before['step']} is followed by step {after['step']}, a warm-up step"
    gap_ns = after["start_ns"] - before["start_ns"] - before["total_ns"]
    if gap_ns and not after["flags"] & AFTER_PAUSE:
        return f"step {after['step']} begins {gap_ns / 1e6:.3f} ms after the end of step {before['step']}"
    return None
