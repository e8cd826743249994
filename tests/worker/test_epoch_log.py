"""epochs.csv: integers in the order of its columns, complete after each epoch, with the epochs of earlier attempts."""

from __future__ import annotations

import csv
import math
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from hpcddp.core.attempt_records import EvaluationResult
from hpcddp.core.records import EPOCH_COLUMNS, epochs_file
from hpcddp.worker.training.epoch_log import EpochEnd, EpochLog

END = EpochEnd(
    epoch=1,
    steps=10,
    samples=640,
    train_ns=5,
    elapsed_ns=7,
    lr=0.1,
    global_batch=64,
    train_loss=2.25,
    evaluation=EvaluationResult(samples=300, correct=299, loss=0.5),
)


def rows(attempt: Path) -> list[list[str]]:
    header, *found = csv.reader(epochs_file(attempt).read_text().splitlines())
    assert tuple(header) == EPOCH_COLUMNS
    return found


def test_a_row_is_there_as_its_epoch_ends(tmp_path: Path) -> None:
    with closing(EpochLog(tmp_path)) as log:
        log.write(END)
        assert rows(tmp_path) == [["1", "10", "640", "5", "7", "100000000000", "64", "2250000000", "299", "300", "500000000"]]


def test_a_cell_is_empty_where_nothing_was_evaluated_and_a_loss_is_no_number(tmp_path: Path) -> None:
    with closing(EpochLog(tmp_path)) as log:
        log.write(replace(END, train_loss=math.nan, evaluation=None))
    assert rows(tmp_path)[0][-4:] == ["", "", "", ""]


def test_a_later_attempt_repeats_the_epochs_before_it(tmp_path: Path) -> None:
    with closing(EpochLog(tmp_path / "7.0")) as first:
        first.write(END)
    second = tmp_path / "7.1"
    with closing(EpochLog(second, first.rows)) as log:
        log.write(replace(END, epoch=2))
    assert [row[0] for row in rows(second)] == ["1", "2"]
    assert log.counts() == (2, zlib.crc32(epochs_file(second).read_bytes()))
