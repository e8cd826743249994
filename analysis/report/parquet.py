"""The tables of a report as Parquet, beside their CSV files: with types, for pandas, Polars, DuckDB or R."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from pathlib import Path

import pandas as pd

from hpcddp.analysis.report.write import Make, report_frames
from hpcddp.analysis.util.failures import Failures
from hpcddp.analysis.util.library import library
from hpcddp.analysis.util.output_files import write_file
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import escape_controls

EXTRA = "parquet"


def write_parquet(folder: Path, found: Findings, failures: Failures, *, wanted: bool) -> list[str]:
    """Each table of the report; returns the names of those written. Where they are not `wanted`, those of an earlier analysis are
    removed.
    """
    written = []
    for name, make in report_frames(found).items():
        file = folder / f"{name}.parquet"
        if wanted and failures.contain(file.name, partial(_written, file, make), False):
            written.append(file.name)
        elif not wanted:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
    return written


def _written(file: Path, make: Make) -> bool:
    table = make()
    if table is None:
        file.unlink(missing_ok=True)
        return False
    write_file(file, parquet_bytes(table))
    return True


def parquet_bytes(table: pd.DataFrame) -> bytes:
    """Numbers as they are, and text without what a terminal would act on; unknown is null."""
    arrow, parquet = library("pyarrow", EXTRA), library("pyarrow.parquet", EXTRA)
    texts = {name: column for name, column in table.items() if pd.api.types.is_string_dtype(column.dtype)}
    text = {str(name): column.map(_shown).astype(column.dtype) for name, column in texts.items()}
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pandas(table.assign(**text), preserve_index=False), buffer)
    return buffer.getvalue()


def _shown(value: object) -> object:
    return escape_controls(value) if isinstance(value, str) else value
