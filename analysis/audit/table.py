"""Reads someone else's table: each row is a measurement or a summary of several, each number an interval."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hpcddp.analysis.audit.cells import is_blank
from hpcddp.analysis.audit.columns import CLAIMS, MEANINGS, REMARKS, SETTINGS, AuditColumn, column
from hpcddp.analysis.audit.configuration import CONFIGURATION
from hpcddp.analysis.audit.derived import with_rates
from hpcddp.analysis.audit.rates import work_of
from hpcddp.analysis.audit.row import MEASURED, Row, read_row
from hpcddp.core.errors import UsageError

MOST_ROWS, MOST_COLUMNS = 20_000, 200
"""Of a table that somebody could print; more are measurements, and take minutes."""


@dataclass(frozen=True)
class AuditTable:
    """Rows in the file's order, and what the headers said."""

    file: Path
    rows: tuple[Row, ...]
    claims: tuple[AuditColumn, ...]
    """Columns of speedups and efficiencies."""
    remarks: tuple[str, ...]
    configuration: tuple[str, ...] = ()
    """Names of the columns of Row.configuration."""
    subject: tuple[str, ...] = ()
    """Names of the columns of Row.subject."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Meaning -> header."""

    @cached_property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.summary is None]

    @cached_property
    def metric(self) -> str:
        """What averages are of: time where there is any."""
        return "time" if any("time" in row.values for row in self.rows) else "throughput"


def read_table(file: Path) -> AuditTable:
    """The table of a CSV or TSV file; UsageError names file, line and what to write instead."""
    lines = _lines(file)
    header_line, header = lines[0]
    _check_size(file, len(lines) - 1, len(header))
    columns, remarks = _columns(file, header_line, header, [cells for _, cells in lines[1:]])
    rows = [read_row(file, line, cells, columns) for line, cells in lines[1:]]
    if not rows:
        raise UsageError(f"{file}:{header_line}: a header and no rows; add a row for each measurement")
    claims = tuple(each for each in columns if each.meaning in CLAIMS)
    settings = [each.name for each in columns if each.meaning is None and each.name in SETTINGS]
    return AuditTable(
        file,
        tuple(with_rates(rows)),
        tuple(_in_percent(claims, rows)),
        tuple(remarks),
        tuple(name for name in settings if name in CONFIGURATION),
        tuple(name for name in settings if name not in CONFIGURATION),
        {each.meaning: each.header for each in columns if each.meaning},
    )


def _check_size(file: Path, rows: int, columns: int) -> None:
    for found, most, what in ((rows, MOST_ROWS, "rows"), (columns, MOST_COLUMNS, "columns")):
        if found > most:
            raise UsageError(f"{file}: {found:,} {what}, and at most {most:,} are audited; leave out what is not published")


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Non-empty lines with their numbers, the header first."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a text file in UTF-8 (byte {error.start}); save the table as CSV in UTF-8") from error
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = "\t" if file.suffix == ".tsv" else max(",;\t|", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    lines: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not (not lines and _is_comment(cells)):
                lines.append((reader.line_num, [cell.strip() for cell in cells]))
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}; quote cells that hold a comma or a quote") from error
    if not lines:
        raise UsageError(f"{file}:1: empty; the first line names the columns, such as nodes,gpus_per_node,time,speedup")
    return lines


def _is_comment(cells: Sequence[str]) -> bool:
    """A line before the header that begins with `#`; `# GPUs,time` is a header."""
    return cells[0].startswith("#") and (len(cells) == 1 or not any(column(cell).meaning for cell in cells))


def _columns(file: Path, line: int, header: Sequence[str], body: Sequence[Sequence[str]]) -> tuple[list[AuditColumn], list[str]]:
    """An AuditColumn per header, and remarks on those that are not read."""
    columns = [_by_content(column(text), i, header, body) for i, text in enumerate(header)]
    remarks = []
    for i, each in enumerate(columns):
        twins = [j for j, other in enumerate(columns) if other.meaning == each.meaning]
        exact = (
            [j for j in twins if columns[j].name == each.meaning] or [j for j in twins if columns[j].rate is None] or twins[:1]
        )
        if each.meaning == "throughput" and len({columns[j].unit for j in exact}) == len(exact):
            counted = next((work_of(other.header) for other in columns if other.meaning == "throughput_per_gpu"), "")
            exact = [next((j for j in exact if work_of(columns[j].header) == counted), exact[0])]
        if each.meaning in (None, *CLAIMS) or len(twins) == 1 or exact == [i]:
            continue
        if len(exact) == 1:
            remarks.append(f"column `{each.header}` is not read: `{each.meaning}` is there too")
            columns[i] = replace(each, meaning=None, name="note")
        else:
            names = " and ".join(f"`{columns[j].header}`" for j in twins)
            raise UsageError(f"{file}:{line}: {names} both mean {each.meaning}; call the one to audit `{each.meaning}`")
    meanings = {each.meaning for each in columns}
    if not meanings & {"gpus", "nodes"}:
        raise _missing(file, line, columns, "says how many GPUs a row used", "gpus, or nodes and gpus_per_node")
    if not meanings & {*MEASURED, "mfu", "average", "median", *CLAIMS, "steps"}:
        raise _missing(file, line, columns, "holds a result", "time, throughput, average, speedup, efficiency")
    unread = [each for each in columns if each.meaning is None and each.name not in SETTINGS | REMARKS and each.header]
    return columns, [*remarks, *(f"column `{each.header}` is not read{_nearest(each)}" for each in unread)]


def _by_content(each: AuditColumn, i: int, header: Sequence[str], body: Sequence[Sequence[str]]) -> AuditColumn:
    """`node` and `gpu` are names, or counts where all their cells are whole numbers."""
    counted = {"node_list": "nodes", "gpu_type": "gpus"}.get(each.meaning or "")
    cells = [cells[i] for cells in body if i < len(cells) and not is_blank(cells[i])]
    taken = counted in {column(text).meaning for text in header}
    if counted and not taken and cells and all(cell.isdigit() for cell in cells):
        return replace(each, meaning=counted, name=counted)
    return each


def _missing(file: Path, line: int, columns: Sequence[AuditColumn], what: str, names: str) -> UsageError:
    near = [f"`{each.header}`{_nearest(each)}" for each in columns if each.meaning is None and _nearest(each)]
    found = f" ({'; '.join(near)})" if near else ""
    return UsageError(f"{file}:{line}: no column {what}{found}; name one {names}")


def _nearest(each: AuditColumn) -> str:
    near = difflib.get_close_matches(each.name, MEANINGS, n=1, cutoff=0.75)
    return f"; did you mean `{near[0]}`?" if near else ""


def _in_percent(claims: Sequence[AuditColumn], rows: Sequence[Row]) -> list[AuditColumn]:
    """Efficiencies are in percent where the header or a cell says so, or none could be a share."""
    found = []
    for i, each in enumerate(claims):
        cells = [row.claims[i] for row in rows if i in row.claims]
        percent = each.unit == "percent" or any("%" in cell.text for cell in cells) or any(cell.value > 4 for cell in cells)
        found.append(replace(each, unit="percent" if percent and each.meaning == "efficiency" else None))
    return found
