"""The cells of a CSV of integers, read 64 characters at a time by functions that numba compiles, where numba is installed.

They take only what the worker writes: digits, commas and line ends, every row with as many cells, no number beyond int64. All
else is left to pandas, which says what is wrong with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Parse = Callable[[NDArray[np.uint8], int, int, NDArray[np.int64], NDArray[np.int64]], int]

EMPTY = -1
"""Stands for a cell that was not measured."""

SHORT = 15
"""Digits of a number that is exact in a double, whatever it is."""

COMPILE_S = 3.0
"""What importing numba and compiling takes, generously."""

PANDAS_S_PER_FILE, PANDAS_S_PER_BYTE = 2e-3, 6e-9

AROUND = 64
"""Bytes before and after those of a file that may be looked at."""


class Room:
    """Memory for one file after another: new pages cost more time than what is read into them."""

    def __init__(self) -> None:
        self._bytes, self._cells = np.empty(0, np.uint8), np.empty(0, np.int64)

    def for_bytes(self, size: int) -> NDArray[np.uint8]:
        """So many and AROUND before and after them, the latter 0."""
        whole = size + 2 * AROUND
        if self._bytes.size < whole:
            self._bytes = np.empty(whole, np.uint8)
        self._bytes[size + AROUND : whole] = 0
        return self._bytes[:whole]

    def for_cells(self, columns: int, rows: int) -> NDArray[np.int64]:
        """(columns, rows)"""
        if self._cells.size < columns * rows:
            self._cells = np.empty(columns * rows, np.int64)
        return self._cells[: columns * rows].reshape(columns, rows)


def prepare(files: int, size: int) -> bool:
    """Compiles, where pandas would take longer for so many files and bytes; whether it would."""
    much = files * PANDAS_S_PER_FILE + size * PANDAS_S_PER_BYTE > COMPILE_S
    if much and not _prepared:
        _prepared.extend(filter(None, [compiled()]))
    return much


def prepared() -> Parse | None:
    """What was compiled; None where it was not worth it, or numba is not installed."""
    return _prepared[0] if _prepared else None


_prepared: list[Parse] = []


@functools.cache
def compiled() -> Parse | None:
    """Parses the rows of bytes [at, end), one at least, into (columns, rows); returns how many there were.

    It returns -1 where it leaves them to pandas. To the bits of each column, (columns,), it adds those of its cells that are
    empty or have more than SHORT digits.

    None without numba. It holds no lock while it runs: threads read side by side.
    """
    try:
        from hpcddp.analysis.records.csv_compiled import compile_parse  # numba: half a second, and seconds more to compile
    except ImportError:
        return None
    parse: Parse = compile_parse()
    return parse
