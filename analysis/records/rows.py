"""A rank's CSV of one attempt, parsed with pandas and checked: against what end.json tells of it, where there is one, and for
what cannot be true, whatever wrote it, which rejects its run, by name.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.util.files import read_regular
from hpcddp.core.records import MOST_LOSS_E9, PARTS
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


RECORDED = (*PARTS, "h2d_hidden")
"""The parts of a step, and the copies that go on beside them, outside their sum."""


def or_zero(column: Any) -> Any:
    """0 where nothing was measured."""
    return column if column.dtype == np.int64 else np.where(np.isfinite(column), column, 0.0)


DAY_NS = 86_400_000_000_000
"""No step lasts a day, as ranks give each other up after minutes (rendezvous.TIMEOUT); no cluster's clock is off by one."""

LATEST_NS = 2**62
"""Of a Unix time: the year 2116. Later ones, with an offset or a step added, would not fit into 64 bits."""

ROUNDING_NS, ROUNDING_SHARE = 20_000, 1e-3
"""What parts may be above their step, and a step may begin before the one before it ended: events of CUDA are 0.5 us apart at
least, and elapsed times come as 32-bit floats of milliseconds; with `accumulate` a part is a sum of dozens of them."""

MOST_BUCKET_BYTES = 2**40
"""A bucket lies in one process's memory; no GPU has a quarter of 1 TiB."""


MOST_SAMPLES = 2**40
"""Of a rank in a step: exact in a double, and so are their sums."""


Mask = NDArray[np.bool_]

Ranges = dict[str, tuple[int, int, str]]
"""Column -> the least and the most of its values, and why no other can be."""

PART = (0, DAY_NS, "a part takes no less than no time, and less than a day")

STEP_RANGES: Ranges = {
    "total_ns": (1, DAY_NS, "a step takes time, and less than a day"),
    **{f"{part}_ns": PART for part in RECORDED},
    "start_ns": (UNKNOWN, LATEST_NS, "no time of this century"),
    "loss_e9": (0, MOST_LOSS_E9, "no cross entropy is negative, nor written above a million"),
    "samples": (0, MOST_SAMPLES, "no step trains that many"),
}

BUCKET_RANGES: Ranges = {
    "bytes": (1, MOST_BUCKET_BYTES, "no bucket of gradients has that many"),
    "index": (0, LATEST_NS, "buckets count from 0"),
    "ready_ns": (0, LATEST_NS, "no time of this century"),
}


def check_steps(columns: Columns, rank: int) -> None:
    """Rejected where a rank's step rows cannot be true; cells that were not measured are passed over."""
    rows = _Rows(columns, rank)
    again = np.zeros(columns["step"].size, np.bool_)
    again[1:] = columns["step"][1:] <= columns["step"][:-1]
    rows.reject_where(again, "a row", columns["step"], "it does not come after the row before it")
    rows.check_ranges(STEP_RANGES)
    parts, total = _sum([columns[name] for part in PARTS if (name := f"{part}_ns") in columns]), columns["total_ns"]
    rows.reject_where(_above(parts - total, total), "parts that add up to", parts, "more than the step itself")
    if "start_ns" in columns:
        early = _early(columns["start_ns"], total)
        rows.reject_where(early, "start_ns", columns["start_ns"], "before the step before it ended: its clock ran backwards")


def _early(start: NDArray[Any], total: NDArray[Any]) -> Mask:
    """Steps that begin before the one before them ended: they follow each other on the rank's own timeline."""
    early = np.zeros(start.size, np.bool_)
    early[1:] = _above(start[:-1] + or_zero(total)[:-1] - start[1:], total[:-1])
    early[1:] &= (start[1:] != UNKNOWN) & (start[:-1] != UNKNOWN)
    return early


def check_buckets(columns: Columns, rank: int) -> None:
    """Rejected where a rank's all-reduces cannot be true."""
    rows = _Rows(columns, rank)
    rows.check_ranges(BUCKET_RANGES)
    lasts = columns["done_ns"] - columns["ready_ns"]
    rows.reject_where((lasts < -ROUNDING_NS) | (lasts > DAY_NS), "done_ns - ready_ns", lasts, "no all-reduce lasts that")


class _Rows:
    """A rank's rows, and the sentence for one that cannot be true."""

    def __init__(self, columns: Columns, rank: int) -> None:
        self._columns, self._rank = columns, rank

    def check_ranges(self, ranges: Ranges) -> None:
        for name, (low, high, why) in ranges.items():
            values = self._columns.get(name)
            if values is None or (values.dtype == np.int64 and values.size and low <= values.min() and values.max() <= high):
                continue  # nearly always, in a fifth of the time
            self.reject_where((values < low) | (values > high), name, values, why)

    def reject_where(self, odd: Mask, what: str, values: NDArray[Any], why: str) -> None:
        if odd.any():
            place = int(odd.argmax())
            value = values[place] if values.dtype == np.int64 else f"{values[place]:.0f}"
            raise Rejected(f"rank {self._rank}: step {self._columns['step'][place]} has {what} {value}: {why}")


def _above(excess: NDArray[Any], total: NDArray[Any]) -> Mask:
    above: Mask = excess > ROUNDING_NS
    if above.any():
        above = excess > ROUNDING_NS + ROUNDING_SHARE * or_zero(total)
    return above


def _sum(parts: Sequence[NDArray[Any]]) -> Any:
    measured = [part for part in parts if part.dtype == np.int64 or np.isfinite(part).any()]
    return sum((or_zero(part) for part in measured), start=np.zeros(parts[0].size, np.int64))
