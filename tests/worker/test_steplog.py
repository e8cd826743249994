"""From the step clock into the files: what is written when.

Timed rows follow each other, or the place where they do not is told.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from hpcddp.core.records import AFTER_PAUSE, BUCKET_COLUMNS, STEP_COLUMNS, WARMUP, RowWriter, buckets_file, steps_file
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steplog import AT_ONCE, StepLog, first_break
from hpcddp.worker.timing.steptimer import StepTimer


def step(log: StepLog, buckets: int = 0) -> None:
    stamp = log.timer.clock.stamp
    log.timer.mark("forward")
    for index in range(buckets):
        bucket = log.timer.bucket(index, 4 << 20, stamp())
        bucket.done = stamp()
    log.timer.close_step(0)
    log.write_finished()


def lines(file: Path) -> list[list[str]]:
    return [line.split(",") for line in file.read_text().splitlines()]


def test_every_step_and_bucket_is_in_the_files(tmp_path: Path) -> None:
    """In order, whatever was written when; the counts are those of the files, checksums of every byte."""
    with StepLog(StepTimer(HostClock()), tmp_path, 3, buckets=True) as log:
        for _ in range(2 * AT_ONCE + 5):
            step(log, buckets=2)
    steps, buckets = lines(steps_file(tmp_path, 3)), lines(buckets_file(tmp_path, 3))
    assert steps[0] == list(STEP_COLUMNS)
    assert [row[0] for row in steps[1:]] == [str(number) for number in range(2 * AT_ONCE + 5)]
    assert buckets[0] == list(BUCKET_COLUMNS)
    assert [row[:2] for row in buckets[1:5]] == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]
    assert {row[2] for row in buckets[1:]} == {"4194304"}
    assert log.counts() == {
        "rows": len(steps) - 1,
        "crc32": zlib.crc32(steps_file(tmp_path, 3).read_bytes()),
        "bucket_rows": len(buckets) - 1,
        "bucket_crc32": zlib.crc32(buckets_file(tmp_path, 3).read_bytes()),
    }


def test_buckets_lie_inside_their_step(tmp_path: Path) -> None:
    """Both files tell Unix time on one timeline."""
    with StepLog(StepTimer(HostClock()), tmp_path, 0, buckets=True) as log:
        for _ in range(3):
            step(log, buckets=1)
    for row, bucket in zip(lines(steps_file(tmp_path, 0))[1:], lines(buckets_file(tmp_path, 0))[1:], strict=True):
        start, total, ready, done = int(row[2]), int(row[STEP_COLUMNS.index("total_ns")]), int(bucket[3]), int(bucket[4])
        assert start <= ready <= done <= start + total


def test_short_steps_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some steps at a time, and no step waits long for the others: half a second after the last writing at most."""
    now_s = 100.0
    monkeypatch.setattr("hpcddp.worker.timing.steplog.time.monotonic", lambda: now_s)
    with StepLog(StepTimer(HostClock()), tmp_path, 0, buckets=False) as log:
        step(log)
        assert log.counts()["rows"] == 1
        for _ in range(AT_ONCE - 1):
            step(log)
        assert log.counts()["rows"] == 1
        step(log)
        assert log.counts()["rows"] == 1 + AT_ONCE
        step(log)
        now_s += 0.5
        step(log)
        assert log.counts()["rows"] == 3 + AT_ONCE


def test_a_pause_leaves_nothing_unwritten(tmp_path: Path) -> None:
    """What is checked in a pause is checked against all rows so far."""
    with StepLog(StepTimer(HostClock()), tmp_path, 0, buckets=False) as log:
        for _ in range(5):
            step(log)
        log.pause()
        assert log.counts()["rows"] == 5
        assert len(lines(steps_file(tmp_path, 0))) >= 1


def test_without_a_hook_there_is_no_bucket_file(tmp_path: Path) -> None:
    """An empty file would look like a run whose ranks exchanged nothing."""
    with StepLog(StepTimer(HostClock()), tmp_path, 0, buckets=False) as log:
        step(log)
    assert not buckets_file(tmp_path, 0).exists()
    assert set(log.counts()) == {"rows", "crc32"}


Row = tuple[int, int, int, int]
"""step, flags, start, total"""


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(0, 0, 0, 5), (1, 0, 5, 5), (2, 0, 10, 5)], None),
        ([(0, 0, 0, 5), (1, 0, 2_000_005, 5)], "step 1 begins 2.000 ms after the end of step 0"),
        ([(0, 0, 0, 5), (1, AFTER_PAUSE, 2_000_005, 5)], None),
        ([(0, WARMUP, 0, 5), (1, 0, 99, 5)], None),
        ([(0, WARMUP, 0, 5), (0, WARMUP, 9, 5), (1, WARMUP, 20, 5)], None),
        ([(0, 0, 0, 5), (0, AFTER_PAUSE, 5, 5)], "step 0 is followed by step 0"),
        ([(0, 0, 0, 5), (2, 0, 5, 5)], "step 0 is followed by step 2"),
        ([(0, 0, 0, 5), (1, WARMUP, 5, 5)], "step 0 is followed by step 1, a warm-up step"),
        ([], None),
    ],
)
def test_the_first_break_is_told(tmp_path: Path, rows: list[Row], says: str | None) -> None:
    """Warm-up rows are left alone, and a pause that is flagged; a step that is counted twice is not."""
    with RowWriter(steps_file(tmp_path, 0), STEP_COLUMNS) as out:
        for step, flags, start, total in rows:
            known = {"step": step, "flags": flags, "start_ns": start, "total_ns": total}
            out.row([known.get(column) for column in STEP_COLUMNS])
    assert first_break(tmp_path, 0) == says
