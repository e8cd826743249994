"""Records that cannot be true reject their run, with the rank, the step and the value, however the rows are read."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.point import Point
from hpcddp.core.records import BUCKET_COLUMNS, STEP_COLUMNS, buckets_file, steps_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, START_NS, Bucket, Recorded, point, write_run, write_study

PLAIN, HOOKED = point(1, 2), point(1, 2, comm="on")
PARTS = {"data_wait": 0.125, "forward": 0.25, "backward": 0.25, "comm_exposed": 0.25}
PLAIN_RECORDS = Recorded(step_ns=8 * MS, shares=PARTS)
TRAVELS = Recorded(step_ns=8 * MS, shares=PARTS, buckets=[Bucket(size_bytes=1000, ready_ns=MS, done_ns=2 * MS)])
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
    "row again": ("step", 2, "rank 1: step 2 has a row"),
}
"""Column, what is written there, what is said."""


@pytest.mark.parametrize("fault", STEPS)
@pytest.mark.parametrize("of", [PLAIN, HOOKED], ids=["comm off", "comm on"])
def test_a_step_that_cannot_be_rejects_its_run(tmp_path: Path, fault: str, of: Point) -> None:
    """One cell of twelve rows."""
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
    """One cell; on all ranks alike, as bytes that differ are a fault of their own."""
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
    """What end.json says of run and ranks."""
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
    """What was found weighs more than what was not looked at."""
    failed = [{"name": "loss is finite", "passed": False, "evidence": "rank 1 had a loss that is infinite"}]
    study, _ = written(tmp_path, Recorded(step_ns=8 * MS, gates=failed))
    assert only(study).reason == "gate `loss is finite`: rank 1 had a loss that is infinite"
