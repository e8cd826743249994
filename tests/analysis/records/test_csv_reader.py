"""Rows read by polars are those pandas reads; what polars does not take is left to pandas, with its words."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcddp.analysis.records import csv_reader
from hpcddp.analysis.records.rows import Rejected, RowFile, read_rows
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.codec import to_plain
from hpcddp.analysis.util.parallel import FORKS
from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.records import PARTS, STEP_COLUMNS, STEP_COLUMNS_1, steps_file
from hpcddp.core.run_root import Study
from tests.analysis import synthetic
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_runs, write_study

COLUMNS = {"step": "int64", "total_ns": "float64"}
HEADER = "step,start_ns,total_ns\n"


def both(file: Path, text: str, monkeypatch: pytest.MonkeyPatch, rows: int | None = None) -> list[pd.DataFrame | str]:
    """The table or the reason for rejecting it, and what was remarked: by polars and by pandas."""
    file.write_bytes(text.encode())
    count = text.count("\n") - 1 if rows is None else rows
    recorded = "".join(text.splitlines(keepends=True)[: count + 1]).encode()
    found: list[pd.DataFrame | str] = []
    for polars in (True, False):
        monkeypatch.setattr(csv_reader, "_polars_process", os.getpid() if polars else None)
        warnings: list[str] = []
        try:
            columns = read_rows(RowFile(file, 3, count, zlib.crc32(recorded)), COLUMNS, warnings)
            found.append(pd.DataFrame(columns).astype(COLUMNS).assign(warnings=" ".join(warnings)))
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
    by_polars, by_pandas = both(tmp_path / "rows.csv", HEADER + rows, monkeypatch)
    assert isinstance(by_polars, pd.DataFrame)
    assert isinstance(by_pandas, pd.DataFrame)
    pd.testing.assert_frame_equal(by_polars, by_pandas)


@pytest.mark.parametrize(
    "rows", ["9223372036854775808,1,2\n", "99999999999999999999999999,1,2\n", ",1,2\n", "0,1,x\n", "0,1,2,3,4\n0\n"]
)
def test_what_pandas_rejects_is_rejected_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    """Too large, empty, no number, too many cells."""
    by_polars, by_pandas = both(tmp_path / "rows.csv", HEADER + rows, monkeypatch)
    assert isinstance(by_polars, str)
    assert by_polars == by_pandas


@pytest.mark.parametrize("header", ["step,start_ns\n", "total_ns,step\n", "step,step,total_ns\n", "a,b,total_ns,step\n"])
def test_columns_go_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    """In any order, among others; without one, or with it twice, as pandas has it."""
    cell = ",".join(str(10 + place) for place in range(header.count(",") + 1))
    by_polars, by_pandas = both(tmp_path / "rows.csv", f"{header}{cell}\n", monkeypatch)
    assert str(by_polars) == str(by_pandas)


def test_a_torn_line_after_the_rows_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And remarked."""
    by_polars, by_pandas = both(tmp_path / "rows.csv", f"{HEADER}0,1,2\n1,2", monkeypatch, rows=1)
    assert isinstance(by_polars, pd.DataFrame)
    assert "1 damaged line after the 1 row recorded" in by_polars["warnings"][0]
    assert isinstance(by_pandas, pd.DataFrame)
    assert by_polars.equals(by_pandas)


def test_polars_takes_what_the_worker_writes() -> None:
    """A thousand rows whose numbers have from 0 to 18 digits."""
    draw = random.Random(1)
    numbers = ((draw.randrange(10**9), draw.randrange(10 ** draw.randint(1, 18)), draw.randrange(10**15)) for _ in range(1000))
    rows = "".join(f"{step},{start},{total if total % 5 else ''}\n" for step, start, total in numbers)
    by_polars = csv_reader._parse_with_polars((HEADER + rows).encode(), COLUMNS)
    by_pandas = csv_reader._parse_with_pandas((HEADER + rows).encode(), COLUMNS)
    assert by_polars is not None
    assert all(np.array_equal(by_polars[name], by_pandas[name], equal_nan=True) for name in COLUMNS)


def test_what_polars_takes_of_damaged_bytes_pandas_reads_alike() -> None:
    """Whatever the bytes are: 1,000 damaged files."""
    draw, taken = random.Random(1), 0
    for _ in range(1000):
        cells = [[draw.choice(["", "1", "-5", "9" * draw.randint(1, 17)]) for _ in range(2)] for _ in range(4)]
        text = bytearray(HEADER + "".join(f"{step},{start},{total}\n" for step, (start, total) in enumerate(cells)), "ascii")
        for _ in range(draw.randint(0, 3)):
            text[draw.randrange(len(text))] = draw.choice(b'\n\r\t,07-x "\xff')
        by_polars = csv_reader._parse_with_polars(bytes(text), COLUMNS)
        if by_polars is not None:
            by_pandas = csv_reader._parse_with_pandas(bytes(text), COLUMNS)
            assert all(np.array_equal(by_polars[name], by_pandas[name], equal_nan=True) for name in COLUMNS)
            taken += 1
    assert taken > 100


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
    for polars in (True, False):
        monkeypatch.setattr(csv_reader, "_polars_process", os.getpid() if polars else None)
        good, damaged = load_study(study, tmp_path / f"cache{polars}").runs
        assert (good.state, damaged.state) == ("counts", "rejected")
        assert str(damaged.reason).endswith("r2/102.0/ranks/00001.steps.csv cannot be read: Input/output error")


def test_names_of_files_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes, patterns and commands among them."""
    by_polars, by_pandas = both(tmp_path / "a'b\"*[1]?$(touch x);{c}.csv.gz", f"{HEADER}0,1,2\n", monkeypatch)
    assert isinstance(by_polars, pd.DataFrame)
    assert isinstance(by_pandas, pd.DataFrame)
    assert by_polars.equals(by_pandas)


def test_a_few_small_files_are_not_large() -> None:
    """Ten; ten thousand are."""
    assert not csv_reader.is_large(10, 10**6)
    assert csv_reader.is_large(10_000, 10**6)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, after `from csv_reader import *`."""
    command = [sys.executable, "-c", f"from hpcddp.analysis.records.csv_reader import *\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)


def test_processes_of_one_that_imported_polars_read_with_pandas() -> None:
    """It may have used it: then they would wait for polars' threads forever."""
    ran = python("print(can_use_polars()); import polars; print(can_use_polars())")
    assert ran.stdout.split() == ["True", str(not FORKS)]


def test_processes_of_one_that_reads_with_polars_read_with_pandas() -> None:
    """As after a process was killed, and this one did its work: the next study is read by processes again."""
    ran = python(
        "from hpcddp.analysis.util.parallel import map_in_parallel\n"
        "read = lambda _: parse(b'step\\n7\\n', {'step': 'int64'})['step'].tolist()\n"
        "use_polars()\n"
        "print(read(0), 'polars' in sys.modules, map_in_parallel(read, range(2), True))"
    )
    assert ran.stdout == "[7] True [[7], [7]]\n"


def test_polars_is_recommended_once_for_a_gigabyte() -> None:
    """On stderr, where it is not installed."""
    code = "[recommend_polars(size) for size in (10**8, 2 * 10**9, 10**10)]"
    without = python(f"importlib.util.find_spec = lambda name: None; {code}").stderr
    assert python(code).stderr == ""
    assert without.count("\n") == 1
    assert "pip install 'hpcddp[fast]'" in without


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
def test_a_run_is_the_same_whatever_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool, starts: bool
) -> None:
    """To the last bit; without starts nobody knows what its all-reduces overlapped with."""
    study, found = hooked_study(tmp_path / "s", measured, starts), []
    for polars in (True, False):
        monkeypatch.setattr(csv_reader, "_polars_process", os.getpid() if polars else None)
        (run,) = load_study(study, tmp_path / f"cache{polars}").runs
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
        for polars in (True, False):
            with monkeypatch.context() as patched:
                patched.setattr(csv_reader, "_polars_process", os.getpid() if polars else None)
                (run,) = load_study(study, tmp_path / f"cache{len(columns)}{polars}").runs
            assert (run.state, run.timeline is not None) == ("counts", True)
            found.append(to_plain(replace(run, point=None)))
    assert all(each == found[0] for each in found)


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of steps tells how long they took, and when they began."""
    study, read = hooked_study(tmp_path / "s"), []

    def reading(file: Path, most_bytes: int, *, cut: bool) -> bytes:
        read.append(file.name)
        return read_regular(file, most_bytes, cut=cut)

    monkeypatch.setattr("hpcddp.analysis.records.rows.read_regular", reading)
    assert load_study(study).runs[0].exchange is not None
    assert sorted(read) == sorted(f"{rank:05d}.{kind}.csv" for rank in range(4) for kind in ("buckets", "steps"))
