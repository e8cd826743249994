"""Parses a rank's CSV: with polars where the extra `fast` is installed and the study is large, otherwise with pandas.

polars reads what the worker writes, integers and empty cells, in about two thirds of pandas' time. All else is left to pandas,
which says what is wrong with it.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.util.parallel import FORKS

Columns = dict[str, NDArray[Any]]
"""A rank's rows by column: doubles of which nan is an empty cell, or int64 where every cell is measured."""

MAYBE_INT = "Int64"
"""Of columns whose numbers are too long for a double: int64, UNKNOWN where the cell is empty."""

UNKNOWN = -1

EXACT = 10**15
"""Below it pandas reads a number into a double without an error."""

LARGE_S = 3.0
"""A study is large where pandas would need longer to read it."""

PANDAS_S_PER_FILE, PANDAS_S_PER_BYTE = 2e-3, 6e-9

RECOMMEND_BYTES = 10**9
SHARE_SAVED = "a fifth"
"""Of an analysis' time, by polars instead of pandas: see tests/bench/analyze_50m."""

_polars_process: int | None = None
"""The process that reads with polars; not those forked from it."""


def is_large(files: int, size_bytes: int) -> bool:
    """Whether so many files of that size together are worth processes and polars."""
    return files * PANDAS_S_PER_FILE + size_bytes * PANDAS_S_PER_BYTE > LARGE_S


def can_use_polars() -> bool:
    """Whether polars is installed, and processes forked from this one can use it.

    Its threads do not survive a fork: where it was used before, a forked process would wait for them forever.
    """
    return not (FORKS and "polars" in sys.modules) and importlib.util.find_spec("polars") is not None


def use_polars() -> None:
    """This process reads with polars from now on."""
    global _polars_process  # noqa: PLW0603 - the choice holds for the process
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # several processes read already
    _polars_process = os.getpid()


def recommend_polars(size_bytes: int) -> None:
    """Says once, on stderr, where there is so much to read and polars is not installed, how much faster that would be."""
    if size_bytes > RECOMMEND_BYTES and importlib.util.find_spec("polars") is None:
        _recommend()


@functools.cache
def _recommend() -> None:
    saved = f"takes about {SHARE_SAVED} less time with `pip install 'hpcddp[fast]'`"
    logging.getLogger(__name__).warning("analyzing more than a gigabyte of CSV %s", saved)


def parse(data: bytes, columns: Mapping[str, str]) -> Columns:
    """Those columns, given with their pandas types; ValueError, TypeError or OverflowError, in pandas' words, where it cannot."""
    found = _parse_with_polars(data, columns) if _polars_process == os.getpid() else None
    return found or _parse_with_pandas(data, columns)


def _parse_with_pandas(data: bytes, columns: Mapping[str, str]) -> Columns:
    table = pd.read_csv(io.BytesIO(data), usecols=list(columns), dtype=columns)
    return {
        name: table[name].fillna(UNKNOWN).to_numpy(np.int64) if type_ == MAYBE_INT else table[name].to_numpy()
        for name, type_ in columns.items()
    }


def _parse_with_polars(data: bytes, columns: Mapping[str, str]) -> Columns | None:
    """None where a cell is no integer, or one that pandas reads in another way."""
    import polars

    header = data.partition(b"\n")[0]
    names = header.decode("ascii", "replace").split(",")
    if not header.isascii() or not set(columns) <= set(names):
        return None
    try:
        table = polars.read_csv(data, schema=dict.fromkeys(names, polars.Int64), quote_char=None)
    except polars.exceptions.PolarsError:
        return None
    if np.count_nonzero(np.frombuffer(data, np.uint8) < ord(",")) != table.height + 1:
        return None  # spaces, quotes or empty lines: of what the worker writes, only line ends come before commas in ASCII
    found: Columns = {}
    for name, type_ in columns.items():
        column = table.get_column(name)
        if type_ == MAYBE_INT:
            column = column.fill_null(UNKNOWN)
        elif column.null_count():
            if type_ == "int64":
                return None
            column = column.cast(polars.Float64)  # an empty cell becomes nan
        found[name] = column.to_numpy()
        if type_ == "float64" and np.fmax.reduce(np.abs(found[name]), initial=0) >= EXACT:
            return None
    return found
