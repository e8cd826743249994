"""A rank's CSV of one attempt, parsed with pandas and checked against what its end.json tells of it, where there is one."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.text import count

Columns = dict[str, NDArray[Any]]
"""A rank's rows by column: doubles of which nan is an empty cell, or int64 where every cell is measured."""

MAYBE_INT = "Int64"
"""Of columns whose numbers are too long for a double: int64, UNKNOWN where the cell is empty."""

UNKNOWN = -1

EXACT = 10**15
"""Below it pandas reads a number into a double without an error."""

LARGE_S = 3.0
"""A study is large where reading it takes longer."""

S_PER_FILE, S_PER_BYTE = 2e-3, 6e-9


def is_large(files: int, size_bytes: int) -> bool:
    """Whether so many files of that size together are worth processes."""
    return files * S_PER_FILE + size_bytes * S_PER_BYTE > LARGE_S


def parse(data: bytes, columns: Mapping[str, str]) -> Columns:
    """Those columns, given with their pandas types; ValueError, TypeError or OverflowError, in pandas' words, where it cannot."""
    table = pd.read_csv(io.BytesIO(data), usecols=list(columns), dtype=columns)
    return {
        name: table[name].fillna(UNKNOWN).to_numpy(np.int64) if type_ == MAYBE_INT else table[name].to_numpy()
        for name, type_ in columns.items()
    }


MOST_HEADER, MOST_ROW = 4096, 1024
"""Bytes; the worker's have 130 and at most 200."""


class Rejected(Exception):
    """The run must not count; the message is the reason."""


@dataclass(frozen=True)
class RowFile:
    """A rank's file: how many rows of it count, and as end.json tells the checksum of all its bytes, header included."""

    file: Path
    rank: int
    rows: int
    crc32: int | None
    """None where the attempt did not come to write it: rows after those are not looked at."""

    @property
    def short(self) -> str:
        """Relative to the study: a moved run root gives the same words."""
        return "/".join(self.file.parts[-5:])


def read_rows(recorded: RowFile, columns: Mapping[str, str], warnings: list[str]) -> Columns:
    """Those columns, given with their pandas types; Rejected where rows are missing or differ from what was recorded."""
    data, surplus = _recorded_rows(recorded)
    if surplus:
        warnings.append(f"{recorded.short}: {surplus} after the {count(recorded.rows, 'row')} recorded; left aside")
    try:
        return parse(data, columns)
    except (ValueError, TypeError, OverflowError) as error:
        raise Rejected(f"rank {recorded.rank}: {recorded.short} cannot be read: {error}") from error


def _recorded_rows(recorded: RowFile) -> tuple[bytes, str]:
    """The bytes end.json's checksum is of, and in words what follows them (nothing: '')."""
    data = _read(recorded)
    if data.endswith(b"\n") and data.count(b"\n") == recorded.rows + 1 and crc32(data) == recorded.crc32:
        return data, ""  # nearly always, in a tenth of the time
    who, lines = f"rank {recorded.rank}", data.splitlines(keepends=True)
    rows, surplus = lines[: recorded.rows + 1], lines[recorded.rows + 1 :]
    if len(rows) < recorded.rows + 1:
        raise Rejected(f"{who}: {recorded.short} has {max(len(rows) - 1, 0)} of {recorded.rows} rows")
    if not rows[-1].endswith(b"\n"):
        raise Rejected(f"{who}: the last row of {recorded.short} is damaged")
    data = b"".join(rows)
    if recorded.crc32 is None:
        return data, ""
    if crc32(data) != recorded.crc32:
        raise Rejected(f"{who}: {recorded.short} does not match its checksum in end.json")
    return data, count(len(surplus), "damaged line") if surplus else ""


def _read(recorded: RowFile) -> bytes:
    """The file's bytes; of an attempt that did not come to write the checksum, as many as its rows can have."""
    most, who = MOST_HEADER + (recorded.rows + 1) * MOST_ROW, f"rank {recorded.rank}"
    try:
        return read_regular(recorded.file, most, cut=recorded.crc32 is None)
    except FileNotFoundError as error:
        raise Rejected(f"{who}: {recorded.short} is missing") from error
    except OSError as error:
        raise Rejected(f"{who}: {recorded.short} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Rejected(f"{who}: {recorded.short} is damaged: {error}") from error
