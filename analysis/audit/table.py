"""Reads someone else's table: each row is a measurement or a summary of several, each number an interval."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hpcddp.analysis.audit.cells import PLAIN, Number, inverse, is_blank, number, plain_digits, seconds
from hpcddp.analysis.audit.columns import CLAIMS, MEANINGS, REMARKS, SETTINGS, TIMES, AuditColumn, column, name_of
from hpcddp.analysis.audit.rates import Rate, rate
from hpcddp.core.errors import UsageError
from hpcddp.core.text import count

COUNTS = ("nodes", "gpus_per_node", "gpus", "batch_per_gpu", "global_batch", "samples", "epochs", "steps", "n")
MEASURED = ("time", "throughput")
PRINTED_RATE = re.compile(r"(.*?\d)\s*([a-z]+\s*(?:/|\bper\b)\s*[a-z]+)", re.IGNORECASE)
MOST_ROWS, MOST_COLUMNS = 20_000, 200
"""Of a table that somebody could print; more are measurements, and take minutes."""

SUMMARIES = {"avg": "mean", "avg.": "mean", "average": "mean", "mean": "mean", "ø": "mean", "median": "median"}

Config = tuple[int | None, int | None, int | None, int | None, tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """One line. Times are seconds; what is not there is None or not in `values`."""

    line: int
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    batch: int | None = None
    setting: tuple[str, ...] = ()
    node_list: str | None = None
    gpu_type: str | None = None
    run: str | None = None
    baseline: str | None = None
    scaling: str | None = None
    summary: str | None = None
    """`mean` or `median` for a row that summarises others."""
    counts: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Number] = field(default_factory=dict)
    """time, throughput, average, median, compute, comm, bandwidth."""
    claims: Mapping[int, Number] = field(default_factory=dict)
    """By the number of the column in AuditTable.claims."""

    @property
    def size(self) -> int:
        """GPUs; nodes where the table does not tell GPUs."""
        return self.gpus or self.nodes or 1

    @property
    def config(self) -> Config:
        return (self.nodes, self.gpus_per_node, self.gpus, self.batch, self.setting)

    @property
    def layout(self) -> str:
        """`4x1` (nodes x GPUs per node), `4 GPUs`, `2 nodes`."""
        if self.nodes and self.gpus_per_node:
            return f"{self.nodes}x{self.gpus_per_node}"
        if self.gpus:
            return count(self.gpus, "GPU")
        return count(self.size, "node")


@dataclass(frozen=True)
class AuditTable:
    """Rows in the file's order, and what the headers said."""

    file: Path
    rows: tuple[Row, ...]
    claims: tuple[AuditColumn, ...]
    """Columns of speedups and efficiencies."""
    remarks: tuple[str, ...]

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
    rows = [_row(file, line, cells, columns) for line, cells in lines[1:]]
    if not rows:
        raise UsageError(f"{file}:{header_line}: a header and no rows; add a row for each measurement")
    claims = tuple(each for each in columns if each.meaning in CLAIMS)
    return AuditTable(file, tuple(rows), tuple(_in_percent(claims, rows)), tuple(remarks))


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
            if any(cell.strip() for cell in cells) and not (cells[0].startswith("#") and not lines and len(cells) == 1):
                lines.append((reader.line_num, [cell.strip() for cell in cells]))
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}; quote cells that hold a comma or a quote") from error
    if not lines:
        raise UsageError(f"{file}:1: empty; the first line names the columns, such as nodes,gpus_per_node,time,speedup")
    return lines


def _columns(file: Path, line: int, header: Sequence[str], body: Sequence[Sequence[str]]) -> tuple[list[AuditColumn], list[str]]:
    """An AuditColumn per header, and remarks on those that are not read."""
    columns = [_by_content(column(text), i, header, body) for i, text in enumerate(header)]
    remarks = []
    for i, each in enumerate(columns):
        twins = [j for j, other in enumerate(columns) if other.meaning == each.meaning]
        exact = [j for j in twins if columns[j].name == each.meaning] or [j for j in twins if columns[j].rate is None]
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
    if not meanings & {*MEASURED, "average", "median", *CLAIMS, "steps"}:
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


def _row(file: Path, line: int, cells: Sequence[str], columns: Sequence[AuditColumn]) -> Row:
    if len(cells) > len(columns):
        raise UsageError(f"{file}:{line}: {len(cells)} cells under {len(columns)} headers; quote cells that hold a separator")
    words: dict[str, str] = {}
    settings, counts, values, claims = list[str](), dict[str, int](), dict[str, Number](), dict[int, Number]()
    claimed = 0
    for each, cell in zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=True):
        try:
            if each.meaning in CLAIMS:
                if not is_blank(cell):
                    claims[claimed] = _positive(number(cell))
                claimed += 1
            elif each.name in SETTINGS and each.meaning is None:
                settings.append(cell)
            elif each.meaning is None or is_blank(cell):
                continue
            elif each.meaning in COUNTS:
                counts[each.meaning] = _count(cell)
            elif each.meaning in MEASURED and (printed := _as_rate(cell, each.rate)):
                values[each.meaning] = printed
            elif each.meaning in TIMES and "throughput" not in each.name:
                values[each.meaning] = _measured(cell, each, columns)
            elif each.meaning in ("throughput", "bandwidth", *TIMES):
                values[each.meaning] = _positive(number(cell))
            else:
                words[each.meaning] = cell
        except ValueError as error:
            raise UsageError(f"{file}:{line}: {each.header}: {error}") from error
    return _sized(file, line, Row(line, setting=tuple(settings), counts=counts, values=values, claims=claims), words)


def _as_rate(cell: str, of_column: Rate | None) -> Number | None:
    """`1,200 tok/s`, `35 s/epoch`, or a bare number under such a header; None for anything else."""
    found = PRINTED_RATE.fullmatch(cell)
    own = rate(name_of(found.group(2))) if found else None
    bare = found.group(1) if found and own else cell
    said = own or of_column
    if said is None or not PLAIN.fullmatch(plain_digits(bare.strip())):
        return None
    printed = replace(_positive(number(bare, said.scale)), text=cell)
    return inverse(printed) if said.inverse else printed


def _measured(cell: str, each: AuditColumn, columns: Sequence[AuditColumn]) -> Number:
    """An average is of throughput where no column holds times."""
    of_throughput = each.meaning in ("average", "median") and "time" not in {other.meaning for other in columns}
    if of_throughput and "time" not in each.name and each.unit is None:
        return _positive(number(cell))
    return seconds(cell, each.unit)


def _positive(found: Number) -> Number:
    if found.value <= 0:
        raise ValueError(f"`{found.text}` is not above zero; leave the cell empty where there is none")
    return found


def _count(cell: str) -> int:
    value = number(cell).value
    if value != int(value) or value < 1:
        raise ValueError(f"`{cell}` is not a whole number from 1 on")
    return int(value)


def _sized(file: Path, line: int, row: Row, words: Mapping[str, str]) -> Row:
    """The row with its layout complete, as far as the table tells."""
    summary = next((SUMMARIES[word.lower()] for word in words.values() if word.lower() in SUMMARIES), None)
    words = {key: word for key, word in words.items() if word.lower() not in SUMMARIES}
    nodes, per_node, gpus = (row.counts.get(key) for key in ("nodes", "gpus_per_node", "gpus"))
    if nodes and gpus and not per_node and gpus % nodes == 0:
        per_node = gpus // nodes
    if per_node and gpus and not nodes and gpus % per_node == 0:
        nodes = gpus // per_node
    if nodes is None and gpus is None:
        raise UsageError(f"{file}:{line}: neither nodes nor gpus is filled in, so the row's size is not known; fill in one")
    return replace(
        row,
        nodes=nodes,
        gpus_per_node=per_node,
        gpus=nodes * per_node if nodes and per_node else gpus,
        batch=row.counts.get("batch_per_gpu"),
        summary=summary,
        node_list=words.get("node_list"),
        gpu_type=words.get("gpu_type"),
        run=words.get("run"),
        baseline=words.get("baseline"),
        scaling=words.get("scaling"),
    )
