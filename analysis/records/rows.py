"""A rank's CSV of one attempt, checked against what its end.json tells of it, where there is one."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.records.csv_reader import AROUND, EMPTY, SHORT, Room, prepared
from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.text import count

try:
    from isal.isal_zlib import crc32  # ten times as fast
except ImportError:
    from zlib import crc32

MOST_HEADER, MOST_ROW = 4096, 1024
"""Bytes; the worker's have 130 and at most 200."""

EXACT = 10**SHORT
"""Below it pandas reads a number into a double without an error."""


Columns = dict[str, NDArray[Any]]
"""A rank's rows by column: doubles of which nan is an empty cell, or int64 where every cell is measured."""

MAYBE_INT = "Int64"
"""Of columns whose numbers are too long for a double: int64, UNKNOWN where the cell is empty."""

UNKNOWN = EMPTY


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


def read_rows(told: RowFile, columns: Mapping[str, str], warnings: list[str], room: Room | None = None) -> Columns:
    """Those columns, given with their pandas types; Rejected where rows are missing or differ from what was recorded.

    What is read into a `room` holds until the next file is.
    """
    found = _read_digits(told, columns, room or Room())
    if found is not None:
        return found
    data, surplus = _whole_rows(told)
    if surplus:
        warnings.append(f"{told.short}: {surplus} after the {count(told.rows, 'row')} recorded; left aside")
    try:
        table = pd.read_csv(io.BytesIO(data), usecols=list(columns), dtype=columns)
        return {name: _to_numpy(table[name]) for name in columns}
    except (ValueError, TypeError, OverflowError) as error:
        raise Rejected(f"rank {told.rank}: {told.short} cannot be read: {error}") from error


def _to_numpy(column: pd.Series[Any]) -> NDArray[Any]:
    return column.fillna(UNKNOWN).to_numpy(np.int64) if column.dtype == MAYBE_INT else column.to_numpy()


def _read_digits(told: RowFile, columns: Mapping[str, str], room: Room) -> Columns | None:
    """The same of a file that is whole and holds plain numbers, several times as fast; None leaves it to what can say why not."""
    parse = prepared()
    if parse is None:
        return None
    data = _read_bytes(told, room)
    end = data.size - AROUND
    if end <= AROUND or (told.crc32 is not None and crc32(data[AROUND:end].data) != told.crc32):
        return None
    header = data[AROUND : min(AROUND + MOST_HEADER, end)].tobytes().partition(b"\n")[0]
    names = header.decode("ascii", "replace").split(",")
    if not 0 < told.rows <= end:
        return None
    cells = room.for_cells(len(names), told.rows)
    bits = np.zeros(len(names), np.int64)
    if parse(data, AROUND + len(header) + 1, end, cells, bits) != told.rows:
        return None
    if not _as_typed(names, cells, bits, columns):
        return None
    places = {name: names.index(name) for name in columns}
    whole = {name for name, type_ in columns.items() if type_ == MAYBE_INT or bits[places[name]] >= 0}
    return {name: cells[i] if name in whole else np.where(cells[i] == EMPTY, np.nan, cells[i]) for name, i in places.items()}


def _read_bytes(told: RowFile, room: Room) -> NDArray[np.uint8]:
    """The file's, and AROUND before and after; nothing but those where it is none, cannot be read, or is too large for the rows
    it should have.
    """
    with contextlib.suppress(OSError):
        if told.file.is_file():
            with told.file.open("rb", buffering=0) as opened:
                size = os.fstat(opened.fileno()).st_size
                if size <= MOST_HEADER + told.rows * MOST_ROW:
                    data = room.for_bytes(size)
                    if opened.readinto(data[AROUND : AROUND + size].data) == size:
                        return data
    return room.for_bytes(0)


def _as_typed(names: list[str], cells: NDArray[np.int64], bits: NDArray[np.int64], columns: Mapping[str, str]) -> bool:
    """Whether each column is there once, whole numbers have no empty cells, and the others are exact in doubles.

    `bits`: as parsed; a column with an empty cell has all of them.
    """
    if any(names.count(name) != 1 for name in columns):
        return False
    places = [(names.index(name), type_) for name, type_ in columns.items() if type_ != MAYBE_INT]
    return all(0 <= bits[i] < EXACT or cells[i].max() < EXACT if type_ == "float64" else bits[i] >= 0 for i, type_ in places)


def _whole_rows(told: RowFile) -> tuple[bytes, str]:
    """The bytes end.json's checksum is of, and in words what follows them (nothing: '')."""
    who = f"rank {told.rank}"
    try:
        most = MOST_HEADER + (told.rows + 1) * MOST_ROW
        lines = read_regular(told.file, most, cut=told.crc32 is None).splitlines(keepends=True)
    except FileNotFoundError as error:
        raise Rejected(f"{who}: {told.short} is missing") from error
    except OSError as error:
        raise Rejected(f"{who}: {told.short} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Rejected(f"{who}: {told.short} is damaged: {error}") from error
    whole, surplus = lines[: told.rows + 1], lines[told.rows + 1 :]
    if len(whole) < told.rows + 1:
        raise Rejected(f"{who}: {told.short} has {max(len(whole) - 1, 0)} of {told.rows} rows")
    if not whole[-1].endswith(b"\n"):
        raise Rejected(f"{who}: the last row of {told.short} is damaged")
    data = b"".join(whole)
    if told.crc32 is None:
        return data, ""
    if crc32(data) != told.crc32:
        raise Rejected(f"{who}: {told.short} does not match its checksum in end.json")
    return data, count(len(surplus), "damaged line") if surplus else ""
