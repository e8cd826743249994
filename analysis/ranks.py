"""The step rows of one attempt, rank by rank, checked against what its end.json tells of them."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from hpcddp.analysis.steps import RunSteps, over_ranks
from hpcddp.records import PARTS, steps_file

COLUMNS = {"step": "int64", "flags": "int64", "total_ns": "float64", **{f"{part}_ns": "float64" for part in PARTS}}
"""What is read, as pandas types; other columns are left aside."""


class Rejected(Exception):
    """The run must not count; the message is the reason."""


def read_steps(attempt: Path, end: dict[str, Any], ranks: int, warnings: list[str]) -> RunSteps:
    """The attempt's steps over all its ranks; Rejected where rows are missing or differ from what was recorded."""
    try:
        return over_ranks(_tables(attempt, end, ranks, warnings))
    except ValueError as error:
        raise Rejected(str(error)) from error


def _tables(attempt: Path, end: dict[str, Any], ranks: int, warnings: list[str]) -> Iterator[pd.DataFrame]:
    told = {entry["rank"]: entry for entry in end["ranks"]}
    for rank in range(ranks):
        if rank not in told:
            raise Rejected(f"end.json tells nothing of rank {rank}")
        file = steps_file(attempt, rank)
        data, surplus = _whole_rows(file, rank, told[rank])
        if surplus:
            warnings.append(f"{_short(file)}: {surplus} after the {told[rank]['rows']} rows recorded; left aside")
        yield _parse(data, file, rank)


def _whole_rows(file: Path, rank: int, told: dict[str, Any]) -> tuple[bytes, str]:
    """The bytes end.json's checksum is of, and in words what follows them (nothing: '')."""
    if not file.is_file():
        raise Rejected(f"rank {rank}: {_short(file)} is missing")
    lines = file.read_bytes().splitlines(keepends=True)
    rows = told["rows"]
    whole, surplus = lines[: rows + 1], lines[rows + 1 :]
    if len(whole) < rows + 1:
        raise Rejected(f"rank {rank}: {_short(file)} has {max(len(whole) - 1, 0)} of {rows} rows")
    if not whole[-1].endswith(b"\n"):
        raise Rejected(f"rank {rank}: the last row of {_short(file)} is damaged")
    data = b"".join(whole)
    if zlib.crc32(data) != told["crc32"]:
        raise Rejected(f"rank {rank}: {_short(file)} does not match its checksum in end.json")
    return data, f"{len(surplus)} damaged line{'s' if len(surplus) > 1 else ''}" if surplus else ""


def _parse(data: bytes, file: Path, rank: int) -> pd.DataFrame:
    try:
        return pd.read_csv(io.BytesIO(data), usecols=list(COLUMNS), dtype=COLUMNS)
    except ValueError as error:
        raise Rejected(f"rank {rank}: {_short(file)} cannot be read: {error}") from error


def _short(file: Path) -> str:
    """Relative to the study: a moved run root gives the same words."""
    return "/".join(file.parts[-5:])
