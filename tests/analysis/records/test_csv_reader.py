"""Rows read by compiled code are those pandas reads; what it does not take is left to pandas, with its words."""

from __future__ import annotations

import errno
import os
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
import pytest

from hpcddp.analysis.records import csv_compiled, csv_reader
from hpcddp.analysis.records.rows import Rejected, RowFile, read_rows
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.codec import to_plain
from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.records import PARTS, STEP_COLUMNS, STEP_COLUMNS_1, steps_file
from hpcddp.core.run_root import Study
from tests.analysis import synthetic
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_runs, write_study

COLUMNS = {"step": "int64", "total_ns": "float64"}
HEADER = "step,start_ns,total_ns\n"


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are there."""
    parse = csv_reader.compiled()
    assert parse is not None
    monkeypatch.setattr(csv_reader, "_prepared", [parse])


def both(file: Path, text: str, monkeypatch: pytest.MonkeyPatch, rows: int | None = None) -> list[pd.DataFrame | str]:
    """The table or the reason for rejecting it, and what was remarked: compiled and by pandas."""
    file.write_bytes(text.encode())
    count = text.count("\n") - 1 if rows is None else rows
    whole = "".join(text.splitlines(keepends=True)[: count + 1]).encode()
    found: list[pd.DataFrame | str] = []
    for prepared in (csv_reader._prepared, []):
        monkeypatch.setattr(csv_reader, "_prepared", prepared)
        warnings: list[str] = []
        try:
            columns = read_rows(RowFile(file, 3, count, zlib.crc32(whole)), COLUMNS, warnings)
            found.append(pd.DataFrame(columns).astype(COLUMNS).assign(said=" ".join(warnings)))
        except Rejected as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    "rows",
    [
        "0,1,2\n",
        "0,1700000000000000000,123456789\n1,9223372036854775807,99999999\n22222222,3,100000000\n",
        "7,,\n",
        "7,1,\n8,2,5\n",
        "00012,1,0000000000000000012\n",
        *(f"{'7' * digits},1,{'9' * min(digits, 15)}\n" for digits in range(1, 19)),
        "0,1,9999999999999999\n",
        "0,1,-5\n",
        "0,1,1.5\n",
        "0,1,1e3\n",
        "0,1,nan\n",
        '"0",1,2\n',
        " 0,1, 2\n",
        "0,+1,2\r\n",
    ],
)
def test_numbers_are_those_pandas_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    """To the last bit, with an empty cell for what was not measured."""
    ours, theirs = both(tmp_path / "rows.csv", HEADER + rows, monkeypatch)
    assert isinstance(ours, pd.DataFrame)
    assert isinstance(theirs, pd.DataFrame)
    pd.testing.assert_frame_equal(ours, theirs)


@pytest.mark.parametrize(
    "rows", ["9223372036854775808,1,2\n", "99999999999999999999999999,1,2\n", ",1,2\n", "0,1,x\n", "0,1,2,3,4\n0\n"]
)
def test_what_pandas_rejects_is_rejected_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    """Too large, empty, no number, too many cells."""
    ours, theirs = both(tmp_path / "rows.csv", HEADER + rows, monkeypatch)
    assert isinstance(ours, str)
    assert ours == theirs


@pytest.mark.parametrize("header", ["step,start_ns\n", "total_ns,step\n", "step,step,total_ns\n", "a,b,total_ns,step\n"])
def test_columns_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    """In any order, among others; without one, or with it twice, as pandas has it."""
    cell = ",".join(str(10 + place) for place in range(header.count(",") + 1))
    ours, theirs = both(tmp_path / "rows.csv", f"{header}{cell}\n", monkeypatch)
    assert str(ours) == str(theirs)


def test_a_torn_line_after_the_rows_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And remarked."""
    ours, theirs = both(tmp_path / "rows.csv", f"{HEADER}0,1,2\n1,2", monkeypatch, rows=1)
    assert isinstance(ours, pd.DataFrame)
    assert "1 damaged line after the 1 row recorded" in ours["said"][0]
    assert isinstance(theirs, pd.DataFrame)
    assert ours.equals(theirs)


def test_rows_lie_anywhere_among_the_bytes_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rows whose numbers have from 0 to 18 digits."""
    draw = random.Random(1)
    csv_reader = ((draw.randrange(10**9), draw.randrange(10 ** draw.randint(1, 18)), draw.randrange(10**15)) for _ in range(1000))
    rows = "".join(f"{step},{start},{total if total % 5 else ''}\n" for step, start, total in csv_reader)
    ours, theirs = both(tmp_path / "rows.csv", HEADER + rows, monkeypatch)
    assert isinstance(ours, pd.DataFrame)
    assert isinstance(theirs, pd.DataFrame)
    pd.testing.assert_frame_equal(ours, theirs)


def test_a_room_takes_files_of_any_size_in_turn(tmp_path: Path) -> None:
    """What is left in it of a longer file is none of a shorter one's."""
    room, file = csv_reader.Room(), tmp_path / "rows.csv"
    for count in (3, 100, 2, 0, 40):
        text = HEADER + "".join(f"{row},1,{count}\n" for row in range(count))
        file.write_text(text)
        columns = read_rows(RowFile(file, 0, count, zlib.crc32(text.encode())), COLUMNS, [], room)
        assert columns["step"].tolist() == list(range(count))
        assert columns["total_ns"].tolist() == [count] * count


def test_columns_with_empty_or_long_cells_are_told() -> None:
    """By all bits of those; others have fewer digits than a double holds."""
    parse, digits = csv_reader.compiled(), "9" * csv_reader.SHORT
    assert parse is not None
    text = f"{digits},{digits}9,\n1,{2**62},1\n".encode()
    data = np.frombuffer(bytes(csv_reader.AROUND) + text + bytes(csv_reader.AROUND), np.uint8).copy()
    out, bits = np.zeros((3, 2), np.int64), np.zeros(3, np.int64)
    assert parse(data, csv_reader.AROUND, csv_reader.AROUND + len(text), out, bits) == 2
    assert bits.tolist() == [0, int(digits + "9") | 2**62, csv_reader.EMPTY]


def test_nothing_is_written_beside_the_cells() -> None:
    """Whatever the bytes are, and however many rows they should be: 2,000 damaged files."""
    parse, draw, guard = csv_reader.compiled(), random.Random(1), 64
    assert parse is not None
    for _ in range(2000):
        columns, rows = draw.randint(1, 5), draw.randint(1, 30)
        numbers = [["7" * draw.choice([0, 1, 8, 9, 16, 19, 20, 30]) for _ in range(columns)] for _ in range(rows)]
        text = bytearray("".join(",".join(row) + "\n" for row in numbers), "ascii")
        for _ in range(draw.randint(0, 3)):
            text[draw.randrange(len(text))] = draw.choice(b"\n,07-x\xff")
        data = np.frombuffer(bytes(csv_reader.AROUND) + text + bytes(csv_reader.AROUND), np.uint8).copy()
        told = max(1, rows + draw.randint(-2, 2))
        whole, bits = np.full(columns * told + 2 * guard, -5), np.full(columns + 2 * guard, 0)
        out = whole[guard:-guard].reshape(columns, told)
        assert parse(data, csv_reader.AROUND, csv_reader.AROUND + len(text), out, bits[guard:-guard]) in (-1, told)
        assert {*whole[:guard], *whole[-guard:]} == {-5}
        assert not bits[:guard].any()
        assert not bits[-guard:].any()


def test_without_a_folder_for_its_cache_it_is_compiled_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is where the folder should be."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    data = np.frombuffer(bytes(64) + b"1,2\n3,4\n" + bytes(64), np.uint8).copy()
    out, bits = np.zeros((2, 2), np.int64), np.zeros(2, np.int64)
    assert csv_compiled.compile_parse()(data, 64, 72, out, bits) == 2
    assert out.tolist() == [[1, 3], [2, 4]]


def test_a_file_that_cannot_be_read_is_named_and_others_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails, whatever reads it."""
    where, fstat = point(1, 2), os.fstat
    study = write_study(tmp_path / "s", [where])
    write_runs(study, where, [8 * MS, 9 * MS])
    file = steps_file(study.attempt_dir(where.label, 2, "102", 0), 1)

    def fails(handle: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{handle}") == str(file):
            raise OSError(errno.EIO, "Input/output error")
        return fstat(handle)

    monkeypatch.setattr(os, "fstat", fails)
    for prepared in (csv_reader._prepared, []):
        monkeypatch.setattr(csv_reader, "_prepared", prepared)
        whole, damaged = load_study(study, tmp_path / f"kept{len(prepared)}").runs
        assert (whole.state, damaged.state) == ("counts", "rejected")
        assert str(damaged.reason).endswith("r2/102.0/ranks/00001.steps.csv cannot be read: Input/output error")


def test_names_of_files_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes, patterns and commands among them."""
    ours, theirs = both(tmp_path / "a'b\"*[1]?$(touch x);{c}.csv.gz", f"{HEADER}0,1,2\n", monkeypatch)
    assert isinstance(ours, pd.DataFrame)
    assert isinstance(theirs, pd.DataFrame)
    assert ours.equals(theirs)


def test_nothing_is_compiled_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten small files; for ten thousand it is."""
    monkeypatch.setattr(csv_reader, "_prepared", [])
    csv_reader.prepare(10, 10**6)
    assert csv_reader.prepared() is None
    csv_reader.prepare(10_000, 10**6)
    assert csv_reader.prepared() is not None


def hooked_study(folder: Path, measured: bool = True, starts: bool = True) -> Study:
    """One run: all-reduces of every second step, clocks that differ, and copies that no rank measured, or starts."""
    where = point(1, 4, comm="on")
    shares = {**dict.fromkeys((*PARTS, *["h2d_hidden"] * measured), 0.1), "comm_exposed": 0.3}
    study = write_study(folder, [where])
    told = Recorded(
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
    write_run(study, where, told)
    return study


@pytest.mark.parametrize(("measured", "starts"), [(True, True), (False, True), (True, False)])
def test_a_run_is_the_same_whatever_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool, starts: bool
) -> None:
    """To the last bit; without starts nobody knows what its all-reduces overlapped with."""
    study, found = hooked_study(tmp_path / "s", measured, starts), []
    for prepared in (csv_reader._prepared, []):
        monkeypatch.setattr(csv_reader, "_prepared", prepared)
        (run,) = load_study(study, tmp_path / f"kept{len(prepared)}").runs
        assert (run.state, run.exchange is not None) == (("counts", True) if starts else ("rejected", False))
        found.append(to_plain(replace(run, point=None)))
    assert found[0] == found[1]


def test_step_rows_of_every_version_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without losses, as they were at first; with them; and with a column that only a later version knows."""
    found = []
    for columns in (STEP_COLUMNS_1, STEP_COLUMNS, (*STEP_COLUMNS, "later")):

        def row(*about: Any, columns: tuple[str, ...] = columns, first: Any = synthetic._row) -> tuple[int | None, ...]:
            return (*first(*about)[: len(STEP_COLUMNS_1)], 2_302_585_093, None)[: len(columns)]

        with monkeypatch.context() as patched:
            patched.setattr(synthetic, "STEP_COLUMNS", columns)
            patched.setattr(synthetic, "_row", row)
            study = hooked_study(tmp_path / f"s{len(columns)}")
        for prepared in (csv_reader._prepared, []):
            with monkeypatch.context() as patched:
                patched.setattr(csv_reader, "_prepared", prepared)
                (run,) = load_study(study, tmp_path / f"kept{len(columns)}{len(prepared)}").runs
            assert (run.state, run.timeline is not None) == ("counts", True)
            found.append(to_plain(replace(run, point=None)))
    assert all(each == found[0] for each in found)


def test_without_compiled_code_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of steps tells how long they took, and when they began."""
    study, read = hooked_study(tmp_path / "s"), []

    def told(file: Path, most_bytes: int, *, cut: bool) -> bytes:
        read.append(file.name)
        return read_regular(file, most_bytes, cut=cut)

    monkeypatch.setattr(csv_reader, "_prepared", [])
    monkeypatch.setattr("hpcddp.analysis.records.rows.read_regular", told)
    assert load_study(study).runs[0].exchange is not None
    assert sorted(read) == sorted(f"{rank:05d}.{kind}.csv" for rank in range(4) for kind in ("buckets", "steps"))
