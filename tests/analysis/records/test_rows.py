"""Rows are read exactly, by the names of their columns; what cannot be read or be true rejects its run, with its reason."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis.records.rows import MAYBE_INT, UNKNOWN, Rejected, RowFile, is_large, read_rows
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.cache import to_plain
from hpcddp.analysis.util.files import read_regular
from hpcddp.core.point import Point
from hpcddp.core.records import (
    BUCKET_COLUMNS,
    EPOCH_COLUMNS,
    PARTS,
    STEP_COLUMNS,
    STEP_COLUMNS_1,
    buckets_file,
    epochs_file,
    steps_file,
    write_json,
)
from hpcddp.core.run_root import Study
from tests.analysis import synthetic
from tests.analysis.synthetic import MS, START_NS, Bucket, Recorded, point, write_run, write_runs, write_study

COLUMNS = {"step": "int64", "total_ns": "float64"}
TIMED_COLUMNS = {"step": "int64", "start_ns": MAYBE_INT, "total_ns": "float64"}
HEADER = "step,start_ns,total_ns\n"
NAN = float("nan")


def read(file: Path, text: str, rows: int | None = None, columns: Mapping[str, str] = TIMED_COLUMNS) -> list[tuple[float, ...]]:
    """The file's rows; the checksum is of so many, or of all."""
    file.write_bytes(text.encode())
    count = text.count("\n") - 1 if rows is None else rows
    recorded = "".join(text.splitlines(keepends=True)[: count + 1]).encode()
    found = read_rows(RowFile(file, 3, count, zlib.crc32(recorded)), columns, [])
    return list(zip(*(found[name].tolist() for name in columns), strict=True))


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("0,1,2", (0, 1, 2.0)),
        ("0,1700000000000000001,123456789", (0, 1_700_000_000_000_000_001, 123456789.0)),
        ("1,9223372036854775807,99999999", (1, 9_223_372_036_854_775_807, 99999999.0)),
        ("7,,", (7, UNKNOWN, NAN)),
        ("00012,1,0000000000000000012", (12, 1, 12.0)),
        *((f"{'7' * digits},1,{'9' * digits}", (int("7" * digits), 1, float("9" * digits))) for digits in range(1, 16)),
        ("0,1,-5", (0, 1, -5.0)),
        ("0,1,1.5", (0, 1, 1.5)),
        ('"0",1,2', (0, 1, 2.0)),
        (" 0,1, 2", (0, 1, 2.0)),
        ("0,+1,2\r", (0, 1, 2.0)),
    ],
)
def test_numbers_are_exact(tmp_path: Path, row: str, numbers: tuple[float, ...]) -> None:
    (found,) = read(tmp_path / "rows.csv", f"{HEADER}{row}\n")
    assert np.array_equal(found, numbers, equal_nan=True)
    assert found[:2] == numbers[:2]


@pytest.mark.parametrize(
    "rows", ["9223372036854775808,1,2\n", "99999999999999999999999999,1,2\n", ",1,2\n", "0,1,x\n", "0,1,2,3,4\n0\n"]
)
def test_what_is_no_number_is_rejected(tmp_path: Path, rows: str) -> None:
    with pytest.raises(Rejected, match=r"rank 3: .*rows\.csv cannot be read: "):
        read(tmp_path / "rows.csv", HEADER + rows, columns=COLUMNS)
    with pytest.raises(Rejected, match="total_ns"):
        read(tmp_path / "rows.csv", "step,start_ns\n0,1\n")


@pytest.mark.parametrize(("header", "numbers"), [("total_ns,step", (11, 10.0)), ("a,b,total_ns,step", (13, 12.0))])
def test_columns_go_by_name(tmp_path: Path, header: str, numbers: tuple[float, ...]) -> None:
    cells = ",".join(str(10 + place) for place in range(header.count(",") + 1))
    assert read(tmp_path / "rows.csv", f"{header}\n{cells}\n", columns=COLUMNS) == [numbers]


def test_a_torn_line_after_the_rows_is_left_aside(tmp_path: Path) -> None:
    file, warnings = tmp_path / "rows.csv", list[str]()
    file.write_text(f"{HEADER}0,1,2\n1,2")
    found = read_rows(RowFile(file, 3, 1, zlib.crc32(f"{HEADER}0,1,2\n".encode())), COLUMNS, warnings)
    assert found["total_ns"].tolist() == [2.0]
    assert ["1 damaged line after the 1 row recorded" in warning for warning in warnings] == [True]


def test_a_file_that_cannot_be_read_is_named_and_others_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, fstat = point(1, 2), os.fstat
    study = write_study(tmp_path / "s", [where])
    write_runs(study, where, [8 * MS, 9 * MS])
    file = steps_file(study.attempt_dir(where.label, 2, "102", 0), 1)

    def fails(handle: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{handle}") == str(file):
            raise OSError(errno.EIO, "Input/output error")
        return fstat(handle)

    monkeypatch.setattr(os, "fstat", fails)
    good, damaged = load_study(study).runs
    assert (good.state, damaged.state) == ("counts", "rejected")
    assert str(damaged.reason).endswith("r2/102.0/ranks/00001.steps.csv cannot be read: Input/output error")


def test_ten_thousand_files_are_large() -> None:
    assert not is_large(10, 10**6)
    assert is_large(10_000, 10**6)


def hooked_study(folder: Path, measured: bool = True, starts: bool = True) -> Study:
    """One run: all-reduces of every second step, clocks that differ, and copies that no rank measured, or starts."""
    where = point(1, 4, comm="on")
    shares = {**dict.fromkeys((*PARTS, *["h2d_hidden"] * measured), 0.1), "comm_exposed": 0.3}
    study = write_study(folder, [where])
    recorded = Recorded(
        step_ns=lambda rank, step: (90 + 7 * rank + step % 5) * MS + 37 * step,
        steps=40,
        shares=shares,
        starts=starts,
        buckets=[
            lambda rank: Bucket(size_bytes=800, ready_ns=(30 + rank) * MS, done_ns=70 * MS),
            Bucket(size_bytes=400, ready_ns=60 * MS, done_ns=80 * MS),
        ],
        bucket_steps=range(0, 40, 2),
        clocks={1: 7 * MS, 3: -MS},
    )
    write_run(study, where, recorded)
    return study


@pytest.mark.parametrize(("measured", "starts"), [(True, True), (False, True), (True, False)])
def test_copies_may_be_unmeasured_and_starts_may_not(tmp_path: Path, measured: bool, starts: bool) -> None:
    """As copies are on CPUs; without starts nobody knows what all-reduces overlapped with."""
    (run,) = load_study(hooked_study(tmp_path / "s", measured, starts)).runs
    assert (run.state, run.exchange is not None) == ("counts" if starts else "rejected", starts)


def test_step_rows_of_every_version_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for columns in (STEP_COLUMNS_1, STEP_COLUMNS, (*STEP_COLUMNS, "later")):

        def row(*about: Any, columns: tuple[str, ...] = columns, first: Any = synthetic._row) -> tuple[int | None, ...]:
            return (*first(*about)[: len(STEP_COLUMNS_1)], 2_302_585_093, None)[: len(columns)]

        with monkeypatch.context() as patched:
            patched.setattr(synthetic, "STEP_COLUMNS", columns)
            patched.setattr(synthetic, "_row", row)
            study = hooked_study(tmp_path / f"s{len(columns)}")
        (run,) = load_study(study).runs
        assert (run.state, run.timeline is not None) == ("counts", True)
        found.append(to_plain(replace(run, point=None)))
    assert all(each == found[0] for each in found)


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, read = hooked_study(tmp_path / "s"), []

    def reading(file: Path, most_bytes: int, *, cut: bool) -> bytes:
        read.append(file.name)
        return read_regular(file, most_bytes, cut=cut)

    monkeypatch.setattr("hpcddp.analysis.records.rows.read_regular", reading)
    assert load_study(study).runs[0].exchange is not None
    assert sorted(read) == sorted(f"{rank:05d}.{kind}.csv" for rank in range(4) for kind in ("buckets", "steps"))


PLAIN, HOOKED = point(1, 2), point(1, 2, comm="on")
SHARES = {"data_wait": 0.125, "forward": 0.25, "backward": 0.25, "comm_exposed": 0.25}
PLAIN_RECORDS = Recorded(step_ns=8 * MS, shares=SHARES, loss=lambda rank, step: 10**9)
TRAVELS = replace(PLAIN_RECORDS, buckets=[Bucket(size_bytes=1000, ready_ns=MS, done_ns=2 * MS)])
DAY_NS = 86_400 * 1000 * MS

Cell = int | str | Callable[[int], int]


@pytest.fixture(autouse=True)
def gone(tmp_path: Path) -> Iterator[None]:
    """What reads all that tests leave behind would stumble."""
    yield
    shutil.rmtree(tmp_path / "s", ignore_errors=True)


def written(folder: Path, recorded: Recorded, of: Point = PLAIN) -> tuple[Study, Path]:
    """A study of one run, and its attempt."""
    study = write_study(folder / "s", [of])
    return study, write_run(study, of, recorded)


def only(study: Study) -> Run:
    (run,) = load_study(study).runs
    return run


def plant(attempt: Path, name: str, value: Cell, row: int = 3, kind: str = "steps") -> None:
    """Another value, or a function of the old one, in one cell of rank 1, under a checksum that holds."""
    rank = 1
    file = {"steps": steps_file, "buckets": buckets_file}[kind](attempt, rank)
    place = {"steps": STEP_COLUMNS, "buckets": BUCKET_COLUMNS}[kind].index(name)
    head, *lines = file.read_text().splitlines()
    row_cells = lines[row].split(",")
    row_cells[place] = str(value(int(row_cells[place])) if callable(value) else value)
    lines[row] = ",".join(row_cells)
    data = "\n".join([head, *lines, ""]).encode()
    file.write_bytes(data)
    end = json.loads((attempt / "end.json").read_text())
    end["ranks"][rank]["crc32" if kind == "steps" else "bucket_crc32"] = zlib.crc32(data)
    write_json(attempt / "end.json", end)


EARLY = "before the step before it ended"
STEPS: list[tuple[str, Cell, str]] = [
    ("total_ns", -8 * MS, "step 3 has total_ns -8000000: a step takes time, and less than a day"),
    ("total_ns", 0, "step 3 has total_ns 0: a step takes time, and less than a day"),
    ("total_ns", 10**15, "step 3 has total_ns 1000000000000000: a step takes time, and less than a day"),
    ("total_ns", "inf", "step 3 has total_ns inf: a step takes time"),
    ("forward_ns", -1, "step 3 has forward_ns -1: a part takes no less than no time"),
    ("forward_ns", "1e400", "step 3 has forward_ns inf: a part takes"),
    ("backward_ns", 4 * MS, "step 3 has parts that add up to 9000000: more than the step itself"),
    ("h2d_hidden_ns", 10**18, "step 3 has h2d_hidden_ns 1000000000000000000: a part takes"),
    ("start_ns", lambda start: start - 60_000 * MS, f"step 3 has start_ns {START_NS + 96 * MS - 60_000 * MS}: {EARLY}"),
    ("start_ns", lambda start: start - MS, f"step 3 has start_ns {START_NS + 95 * MS}: {EARLY}"),
    ("start_ns", -5, "step 3 has start_ns -5: no time of this century"),
    ("start_ns", 2**63 - 1, "step 3 has start_ns 9223372036854775807: no time of this century"),
    ("loss_e9", -1, "step 3 has loss_e9 -1: no cross entropy"),
    ("loss_e9", 10**15, "step 3 has loss_e9"),
    ("loss_e9", "low", "n01"),
    ("loss_e9", "1e400", "step 3 has"),
    ("step", 2, "step 2 has a row"),
]
"""Column, what is written there, what is said."""

BUCKETS: list[tuple[str, Cell, str]] = [
    ("bytes", 0, "step 2 has bytes 0"),
    ("bytes", -25_000_000, "step 2 has bytes -25000000"),
    ("bytes", 10**16, "step 2 has bytes 10000000000000000"),
    ("done_ns", lambda done: done - 500 * MS, "step 2 has done_ns - ready_ns -499000000"),
    ("ready_ns", 5, "step 2 has done_ns - ready_ns 1700000000"),
    ("index", -1, "step 2 has index -1"),
]


@pytest.mark.parametrize(
    ("of", "kind", "row", "fault"),
    [
        *((PLAIN, "steps", 3, fault) for fault in STEPS),
        *((HOOKED, "steps", 3, fault) for fault in STEPS),
        *((HOOKED, "buckets", 2, fault) for fault in BUCKETS),
    ],
)
def test_a_row_of_a_rank_that_cannot_be_rejects_its_run(
    tmp_path: Path, of: Point, kind: str, row: int, fault: tuple[str, Cell, str]
) -> None:
    name, value, said = fault
    study, attempt = written(tmp_path, TRAVELS if of is HOOKED else PLAIN_RECORDS, of)
    assert only(study).state == "counts"
    plant(attempt, name, value, row, kind)
    run = only(study)
    assert run.state == "rejected"
    assert (run.reason or "").startswith(f"rank 1: {said}")


@pytest.mark.parametrize(
    ("name", "value"), [("start_ns", lambda start: start - 19_000), ("start_ns", lambda start: start + MS), ("h2d_hidden_ns", 0)]
)
def test_what_rounding_and_pauses_do_is_no_fault(tmp_path: Path, name: str, value: Cell) -> None:
    """A start 19 us early, as CUDA's events may have it; one after a pause; a copy that took no time."""
    study, attempt = written(tmp_path, PLAIN_RECORDS)
    plant(attempt, name, value, row=5)
    assert only(study).state == "counts"


def changed(attempt: Path, change: Callable[[dict[str, Any]], object]) -> None:
    end = json.loads((attempt / "end.json").read_text())
    change(end)
    write_json(attempt / "end.json", end)


OFFSET = {"unix_ns": START_NS, "offset_ns": 0, "error_ns": 1000}

ENDS: list[tuple[int | None, dict[str, Any], str]] = [
    (None, {"evaluation": {"samples": 9, "correct": 10}}, "end.json: evaluation.correct is 10, of 9 samples"),
    (None, {"evaluation": {"correct": 1}}, "end.json: evaluation.correct is 1, of None samples"),
    (
        None,
        {"evaluation": {"samples": 9, "correct": 1, "loss": -0.1}},
        "end.json: evaluation.loss is -0.1: a cross entropy is not negative, nor infinite",
    ),
    (None, {"global_batch": 65}, "end.json: global_batch is 65, and the point's is 64"),
    (None, {"gates": []}, "end.json: check `parameters agree` is missing"),
    (None, {"telemetry": {"energy_j_per_1000_samples": -3.5}}, "end.json: telemetry.energy_j_per_1000_samples is -3.5, below 0"),
    (
        1,
        {"clock": {"start": {**OFFSET, "offset_ns": -2 * DAY_NS}}},
        f"rank 1: its clock's offset_ns at the start is {-2 * DAY_NS}, more than a day",
    ),
    (
        0,
        {"clock": {"end": {**OFFSET, "error_ns": 7 * DAY_NS}}},
        f"rank 0: its clock's error_ns at the end is {7 * DAY_NS}, more than a day",
    ),
    (
        0,
        {"clock": {"start": OFFSET, "end": {**OFFSET, "unix_ns": START_NS - MS}}},
        f"rank 0: its clock ran backwards, from {START_NS} to {START_NS - MS}",
    ),
    (1, {"peak_memory_bytes": {"allocated": 2**60}}, f"rank 1: peak_memory_bytes allocated is {2**60}: no machine has that"),
]
"""Of a rank or the run, what else end.json has, and what is said."""


@pytest.mark.parametrize(("rank", "changes", "said"), ENDS)
def test_an_end_that_cannot_be_rejects_its_run(tmp_path: Path, rank: int | None, changes: dict[str, Any], said: str) -> None:
    study, attempt = written(tmp_path, PLAIN_RECORDS)
    changed(attempt, lambda end: (end if rank is None else end["ranks"][rank]).update(changes))
    assert (only(study).state, only(study).reason) == ("rejected", said)


def test_gates_that_the_records_own_version_knew_must_be_there(tmp_path: Path) -> None:
    """launch.json says which; records that are older count as they did."""
    named = {"gates": ["parameters agree", "ranks stepped equally"]}
    study, attempt = written(tmp_path, Recorded(step_ns=8 * MS, launch=named))
    assert only(study).reason == "end.json: check `ranks stepped equally` is missing"
    changed(attempt, lambda end: end["gates"].append({"name": "ranks stepped equally", "passed": True, "evidence": "6 steps"}))
    assert only(study).state == "counts"


def test_a_gate_that_failed_is_named_before_one_that_is_missing(tmp_path: Path) -> None:
    failed = [{"name": "loss is finite", "passed": False, "evidence": "rank 1 had a loss that is infinite"}]
    study, _ = written(tmp_path, Recorded(step_ns=8 * MS, gates=failed))
    assert only(study).reason == "check `loss is finite`: rank 1 had a loss that is infinite"


S = 1000 * MS
TRAINED = point(1, 2, work="train", epochs=3)

EPOCHS: list[list[int | None]] = [
    [1, 2, 128, 2 * S, 3 * S, 10**10, 64, 2 * S, 50, 100, 15 * S // 10],
    [2, 4, 256, 4 * S, 5 * S, 9 * 10**9, 64, None, None, None, None],
    [3, 6, 384, 6 * S, 8 * S, 8 * 10**9, 64, S, 93, 100, S // 2],
]
CELLS = list(EPOCH_COLUMNS)
TRAINING = Recorded(step_ns=MS, steps=5)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    study, _ = written(tmp_path, replace(TRAINING, epochs=EPOCHS), TRAINED)
    for run in (only(study), only(study)):
        assert run.epochs is not None
        first, second, third = run.epochs
        assert (first.epoch, first.step, first.samples, first.train_ns, first.elapsed_ns) == (1, 2, 128, 2 * S, 3 * S)
        assert (first.lr, first.batch, first.train_loss) == (0.01, 64, 2)
        assert (first.correct, first.total, first.eval_loss) == (50, 100, 1.5)
        assert (second.train_loss, second.correct, second.total, second.eval_loss) == (None,) * 4
        assert (third.correct, run.samples_trained) == (93, 384)


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
    row, cell, value, reason = ODD[name]
    rows: list[Any] = [list(each) for each in EPOCHS]
    rows[row][CELLS.index(cell)] = value
    run = only(written(tmp_path, replace(TRAINING, epochs=rows), TRAINED)[0])
    assert run.state == "rejected"
    assert reason in str(run.reason)


def test_a_file_that_is_not_what_was_recorded_rejects(tmp_path: Path) -> None:
    study, attempt = written(tmp_path, replace(TRAINING, epochs=EPOCHS), TRAINED)
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
    changed(attempt, lambda end: end.update(epoch_crc32=None))
    assert "epoch_crc32" in str(only(study).reason)


def test_rows_that_lack_their_losses_reject(tmp_path: Path) -> None:
    study, attempt = written(tmp_path, PLAIN_RECORDS)
    file = steps_file(attempt, 1)
    file.write_text(file.read_text().replace("loss_e9", "lost_e9", 1))
    changed(attempt, lambda end: end["ranks"][1].update(crc32=zlib.crc32(file.read_bytes())))
    assert "cannot be read" in str(only(study).reason)
