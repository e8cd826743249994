"""epochs.csv: read as it was written, and what cannot be true rejects its run by row and value."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.records import EPOCH_COLUMNS, epochs_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

S = 1000 * MS
TRAINED = point(1, 2, work="train", epochs=3)

ROWS: list[list[int | None]] = [
    [1, 2, 128, 2 * S, 3 * S, 10**10, 64, 2 * S, 50, 100, 15 * S // 10],
    [2, 4, 256, 4 * S, 5 * S, 9 * 10**9, 64, None, None, None, None],
    [3, 6, 384, 6 * S, 8 * S, 8 * 10**9, 64, S, 93, 100, S // 2],
]
CELLS = list(EPOCH_COLUMNS)


def trained(folder: Path, rows: list[list[int | None]]) -> tuple[Study, Path]:
    """A study of one training, and its attempt."""
    study = write_study(folder / "s", [TRAINED])
    return study, write_run(study, TRAINED, Recorded(step_ns=MS, steps=5, epochs=rows))


def only(study: Study) -> Run:
    (run,) = load_study(study).runs
    return run


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    """What is empty is None; the samples of the run are those of its last row; so it is from the cache."""
    study, _ = trained(tmp_path, ROWS)
    for run in (only(study), only(study)):
        assert run.epochs is not None
        first, second, third = run.epochs
        assert (first.epoch, first.step, first.samples, first.train_ns, first.elapsed_ns) == (1, 2, 128, 2 * S, 3 * S)
        assert (first.lr, first.batch, first.train_loss, first.correct, first.total, first.eval_loss) == (
            0.01,
            64,
            2,
            50,
            100,
            1.5,
        )
        assert (second.train_loss, second.correct, second.total, second.eval_loss, second.evaluated) == (None,) * 4 + (False,)
        assert (third.correct, run.samples_trained) == (93, 384)


def test_a_run_of_steps_has_none(tmp_path: Path) -> None:
    """Its end.json tells of no rows, as that of an older version."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_run(study, point(1, 1), Recorded(step_ns=MS))
    assert (only(study).state, only(study).epochs) == ("counts", None)


ODD: dict[str, tuple[int, str, int | str | None, str]] = {
    "epoch": (1, "epoch", 3, "row 2 has epoch 3: epochs count from 1"),
    "fewer steps": (1, "step", 2, "row 2 has step 2: it is no more than before"),
    "more steps than the run": (2, "step", 7, "row 3 has step 7: the run made fewer steps"),
    "fewer samples": (2, "samples", 200, "row 3 has samples 200: it is no more"),
    "negative samples": (0, "samples", -1, "row 1 has samples -1"),
    "samples without steps": (0, "samples", 1, "row 1 has samples 1: a step trains a sample at least"),
    "no time": (0, "train_ns", 0, "row 1 has train_ns 0: it is no more"),
    "time backwards": (1, "elapsed_ns", S, "row 2 has elapsed_ns 1e+09: it is no more"),
    "more training than time": (0, "train_ns", 3 * S + S // 2, "row 1 has train_ns 3.5e+09: more than passed meanwhile"),
    "a century": (2, "elapsed_ns", 10**18 * 4, "row 3 has elapsed_ns 4e+18: no training takes a year"),
    "negative rate": (1, "lr_e12", -1, "row 2 has lr_e12 -1: a rate is not negative"),
    "no batch": (1, "batch", 0, "row 2 has batch 0: a batch has a sample"),
    "negative loss": (2, "train_loss_e9", -5, "row 3 has train_loss_e9 -5: no cross entropy"),
    "huge loss": (0, "eval_loss_e9", 10**15, "row 1 has eval_loss_e9 1e+15: no cross entropy"),
    "more right than there are": (2, "correct", 101, "row 3 has correct 101: not that many"),
    "negative right": (0, "correct", -1, "row 1 has correct -1: not that many"),
    "another set": (2, "total", 99, "row 3 has total 99: all are of one evaluation set"),
    "half an evaluation": (0, "total", None, "row 1 has correct 50: an evaluation has both counts"),
    "text": (0, "correct", "many", "cannot be read"),
    "empty": (1, "samples", None, "cannot be read"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_row_that_cannot_be_rejects_its_run(tmp_path: Path, name: str) -> None:
    """Under a checksum that holds."""
    row, cell, value, reason = ODD[name]
    rows: list[Any] = [list(each) for each in ROWS]
    rows[row][CELLS.index(cell)] = value
    run = only(trained(tmp_path, rows)[0])
    assert run.state == "rejected"
    assert reason in str(run.reason)


def test_a_file_that_is_not_what_was_recorded_rejects(tmp_path: Path) -> None:
    """Missing, a row short, or another digit."""
    study, attempt = trained(tmp_path, ROWS)
    file = epochs_file(attempt)
    complete = file.read_bytes()
    for data, reason in (
        (complete.replace(b"93,", b"94,"), "does not match its checksum"),
        (b"".join(complete.splitlines(keepends=True)[:-1]), "has 2 of 3 rows"),
    ):
        file.write_bytes(data)
        assert reason in str(only(study).reason)
    file.unlink()
    assert "epochs.csv is missing" in str(only(study).reason)


def test_a_checksum_that_is_missing_rejects(tmp_path: Path) -> None:
    """Rows are counted, so they have one."""
    study, attempt = trained(tmp_path, ROWS)
    end = json.loads((attempt / "end.json").read_text())
    assert end["epoch_crc32"] == zlib.crc32(epochs_file(attempt).read_bytes())
    write_json(attempt / "end.json", {**end, "epoch_crc32": None})
    assert "epoch_crc32" in str(only(study).reason)
