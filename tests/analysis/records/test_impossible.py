"""Records that cannot be true reject their run, with the rank, the step and the value, however the rows are read."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.point import Point
from hpcddp.core.records import BUCKET_COLUMNS, EPOCH_COLUMNS, STEP_COLUMNS, buckets_file, epochs_file, steps_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, START_NS, Bucket, Recorded, point, write_run, write_study

PLAIN, HOOKED = point(1, 2), point(1, 2, comm="on")
PARTS = {"data_wait": 0.125, "forward": 0.25, "backward": 0.25, "comm_exposed": 0.25}
PLAIN_RECORDS = Recorded(step_ns=8 * MS, shares=PARTS, loss=lambda rank, step: 10**9)
TRAVELS = replace(PLAIN_RECORDS, buckets=[Bucket(size_bytes=1000, ready_ns=MS, done_ns=2 * MS)])
DAY_NS = 86_400 * 1000 * MS

Cell = int | str | Callable[[int], int]


@pytest.fixture(autouse=True)
def gone(tmp_path: Path) -> Iterator[None]:
    """What reads all that tests leave behind would stumble."""
    yield
    shutil.rmtree(tmp_path / "s")


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


STEPS: dict[str, tuple[str, Cell, str]] = {
    "negative time": ("total_ns", -8 * MS, "rank 1: step 3 has total_ns -8000000: a step takes time, and less than a day"),
    "no time": ("total_ns", 0, "rank 1: step 3 has total_ns 0: a step takes time, and less than a day"),
    "11 days": ("total_ns", 10**15, "rank 1: step 3 has total_ns 1000000000000000: a step takes time, and less than a day"),
    "negative part": ("forward_ns", -1, "rank 1: step 3 has forward_ns -1: a part takes no less than no time"),
    "parts above": (
        "backward_ns",
        4 * MS,
        "rank 1: step 3 has parts that add up to 9000000: more than the step itself",
    ),
    "part of a year": ("h2d_hidden_ns", 10**18, "rank 1: step 3 has h2d_hidden_ns 1000000000000000000: a part takes"),
    "clock jumps back": (
        "start_ns",
        lambda start: start - 60_000 * MS,
        f"rank 1: step 3 has start_ns {START_NS + 96 * MS - 60_000 * MS}: before the step before it ended",
    ),
    "steps overlap": (
        "start_ns",
        lambda start: start - MS,
        f"rank 1: step 3 has start_ns {START_NS + 95 * MS}: before the step before it ended",
    ),
    "start before 1970": ("start_ns", -5, "rank 1: step 3 has start_ns -5: no time of this century"),
    "start in 2200": ("start_ns", 2**63 - 1, "rank 1: step 3 has start_ns 9223372036854775807: no time of this century"),
    "infinite time": ("total_ns", "inf", "rank 1: step 3 has total_ns inf: a step takes time"),
    "infinite part": ("forward_ns", "1e400", "rank 1: step 3 has forward_ns inf: a part takes"),
    "negative loss": ("loss_e9", -1, "rank 1: step 3 has loss_e9 -1: no cross entropy"),
    "huge loss": ("loss_e9", 10**15, "rank 1: step 3 has loss_e9"),
    "loss in words": ("loss_e9", "low", "rank 1: n01"),
    "infinite loss": ("loss_e9", "1e400", "rank 1: step 3 has"),
    "row again": ("step", 2, "rank 1: step 2 has a row"),
}
"""Column, what is written there, what is said."""


@pytest.mark.parametrize("fault", STEPS)
@pytest.mark.parametrize("of", [PLAIN, HOOKED], ids=["comm off", "comm on"])
def test_a_step_that_cannot_be_rejects_its_run(tmp_path: Path, fault: str, of: Point) -> None:
    name, value, said = STEPS[fault]
    study, attempt = written(tmp_path, TRAVELS if of is HOOKED else PLAIN_RECORDS, of)
    assert only(study).state == "counts"
    plant(attempt, name, value)
    run = only(study)
    assert run.state == "rejected"
    assert (run.reason or "").startswith(said)


@pytest.mark.parametrize(
    ("name", "value"), [("start_ns", lambda start: start - 19_000), ("start_ns", lambda start: start + MS), ("h2d_hidden_ns", 0)]
)
def test_what_rounding_and_pauses_do_is_no_fault(tmp_path: Path, name: str, value: Cell) -> None:
    """A start 19 us early, as CUDA's events may have it; one after a pause; a copy that took no time."""
    study, attempt = written(tmp_path, PLAIN_RECORDS)
    plant(attempt, name, value, row=5)
    assert only(study).state == "counts"


BUCKETS: dict[str, tuple[str, Cell, str]] = {
    "no bytes": ("bytes", 0, "rank 1: step 2 has bytes 0"),
    "negative bytes": ("bytes", -25_000_000, "rank 1: step 2 has bytes -25000000"),
    "bytes that no memory holds": ("bytes", 10**16, "rank 1: step 2 has bytes 10000000000000000"),
    "done before it was ready": ("done_ns", lambda done: done - 500 * MS, "rank 1: step 2 has done_ns - ready_ns -499000000"),
    "ready in 1970": ("ready_ns", 5, "rank 1: step 2 has done_ns - ready_ns 1700000000"),
    "index below 0": ("index", -1, "rank 1: step 2 has index -1"),
}


@pytest.mark.parametrize("fault", BUCKETS)
def test_an_all_reduce_that_cannot_be_rejects_its_run(tmp_path: Path, fault: str) -> None:
    name, value, said = BUCKETS[fault]
    study, attempt = written(tmp_path, TRAVELS, HOOKED)
    plant(attempt, name, value, row=2, kind="buckets")
    run = only(study)
    assert run.state == "rejected"
    assert (run.reason or "").startswith(said)


def changed(attempt: Path, change: Callable[[dict[str, Any]], object]) -> None:
    end = json.loads((attempt / "end.json").read_text())
    change(end)
    write_json(attempt / "end.json", end)


OFFSET = {"unix_ns": START_NS, "offset_ns": 0, "error_ns": 1000}

ENDS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "more right than there are": (
        lambda end: end.update(evaluation={"samples": 9, "correct": 10}),
        "end.json: evaluation.correct is 10, of 9 samples",
    ),
    "right of nothing": (
        lambda end: end.update(evaluation={"correct": 1}),
        "end.json: evaluation.correct is 1, of None samples",
    ),
    "loss below 0": (
        lambda end: end.update(evaluation={"samples": 9, "correct": 1, "loss": -0.1}),
        "end.json: evaluation.loss is -0.1: a cross entropy is not negative, nor infinite",
    ),
    "another batch": (lambda end: end.update(global_batch=65), "end.json: global_batch is 65, and the point's is 64"),
    "no gates": (lambda end: end.update(gates=[]), "end.json: gate `parameters agree` is missing"),
    "clock off by two days": (
        lambda end: end["ranks"][1].update(clock={"start": {**OFFSET, "offset_ns": -2 * DAY_NS}}),
        f"rank 1: its clock's offset_ns at the start is {-2 * DAY_NS}, more than a day",
    ),
    "clock known to a week": (
        lambda end: end["ranks"][0].update(clock={"end": {**OFFSET, "error_ns": 7 * DAY_NS}}),
        f"rank 0: its clock's error_ns at the end is {7 * DAY_NS}, more than a day",
    ),
    "clock backwards": (
        lambda end: end["ranks"][0].update(clock={"start": OFFSET, "end": {**OFFSET, "unix_ns": START_NS - MS}}),
        f"rank 0: its clock ran backwards, from {START_NS} to {START_NS - MS}",
    ),
    "negative energy": (
        lambda end: end.update(telemetry={"energy_j_per_1000_samples": -3.5}),
        "end.json: telemetry.energy_j_per_1000_samples is -3.5, below 0",
    ),
    "memory of an exabyte": (
        lambda end: end["ranks"][1].update(peak_memory_bytes={"allocated": 2**60}),
        f"rank 1: peak_memory_bytes allocated is {2**60}: no machine has that",
    ),
}


@pytest.mark.parametrize("fault", ENDS)
def test_an_end_that_cannot_be_rejects_its_run(tmp_path: Path, fault: str) -> None:
    change, said = ENDS[fault]
    study, attempt = written(tmp_path, PLAIN_RECORDS)
    changed(attempt, change)
    assert (only(study).state, only(study).reason) == ("rejected", said)


def test_gates_that_the_records_own_version_knew_must_be_there(tmp_path: Path) -> None:
    """launch.json says which; records that are older count as they did."""
    named = {"gates": ["parameters agree", "ranks stepped equally"]}
    study, attempt = written(tmp_path, Recorded(step_ns=8 * MS, launch=named))
    assert only(study).reason == "end.json: gate `ranks stepped equally` is missing"
    changed(attempt, lambda end: end["gates"].append({"name": "ranks stepped equally", "passed": True, "evidence": "6 steps"}))
    assert only(study).state == "counts"


def test_a_gate_that_failed_is_named_before_one_that_is_missing(tmp_path: Path) -> None:
    failed = [{"name": "loss is finite", "passed": False, "evidence": "rank 1 had a loss that is infinite"}]
    study, _ = written(tmp_path, Recorded(step_ns=8 * MS, gates=failed))
    assert only(study).reason == "gate `loss is finite`: rank 1 had a loss that is infinite"


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
