"""Parses a rank's CSV with pandas."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
