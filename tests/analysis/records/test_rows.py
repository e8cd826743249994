"""Rows are read exactly, by the names of their columns; what cannot be read is rejected with its reason."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis.records.rows import MAYBE_INT, UNKNOWN, Rejected, RowFile, is_large, read_rows
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.cache import to_plain
from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.records import PARTS, STEP_COLUMNS, STEP_COLUMNS_1, steps_file
from hpcddp.core.run_root import Study
from tests.analysis import synthetic
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_runs, write_study

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
