"""A table as a value: columns with their heads, cells with what they sort by. Writers make it HTML, Markdown, LaTeX or text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, groupby
from typing import Any

import pandas as pd

from hpcddp.analysis.study.axes import is_number
from hpcddp.analysis.study.series import Apart, text_of
from hpcddp.analysis.util.wording import quantity, times, unit
from hpcddp.core.text import thousands

UNKNOWN = "–"


@dataclass(frozen=True)
class Column:
    """A head, the heading it shares with its neighbours, and what is different on the terminal."""

    head: str
    group: str = ""
    numeric: bool = True
    terminal: str | None = ""
    """The head on the terminal: empty, the same; None, the column is not there."""
    within: str = ""
    """On the terminal the text stands behind that of the column before it, written like this, such as ` ({})`."""
    always: bool = False
    """On the terminal also where nothing in it is known."""
    key: bool = False
    """Tells series apart: a narrow terminal has it in a line above each series."""
    documents: bool = True
    """False: on the terminal only."""

    @property
    def name(self) -> str:
        """Heading and head in one line."""
        return f"{self.group}: {self.head}" if self.group else self.head


@dataclass(frozen=True)
class Cell:
    """What is written, and what it sorts by; None is unknown and sorts last."""

    text: str
    value: float | str | None


@dataclass(frozen=True)
class Table:
    """One table; `name` is the stem of its files, `note` says what its numbers are."""

    name: str
    title: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """(heading, how many columns in a row share it)"""
        return [(group, len(list(columns))) for group, columns in groupby(column.group for column in self.columns)]

    @property
    def in_documents(self) -> Table:
        """Without what the terminal alone shows, and without columns in which nothing is known."""
        return self.only([column.documents and self.known(i) for i, column in enumerate(self.columns)])

    def known(self, i: int) -> bool:
        """Whether the column has any value."""
        return any(row[i].value is not None for row in self.rows)

    def without(self, heading: str) -> Table:
        """The table without columns below headings that begin so: for narrow terminals."""
        return self.only([not column.group.startswith(heading) for column in self.columns])

    def only(self, chosen: Sequence[bool]) -> Table:
        """The table with the columns chosen."""
        rows = [list(compress(row, chosen)) for row in self.rows]
        return replace(self, columns=list(compress(self.columns, chosen)), rows=rows)


PLAIN = str.maketrans("–×", "-x")
"""What a terminal may not have."""


@dataclass(frozen=True)
class _TextColumn:
    head: str
    key: bool
    texts: list[str]


def terminal_forms(table: Table) -> list[str]:
    """The table; and a narrower one, where what tells series apart is a line above each series instead."""
    columns = _columns(table)
    keys, others = ([column for column in columns if column.key is is_key] for is_key in (True, False))
    if not keys:
        return [_aligned(columns)]
    names = [", ".join(f"{column.head} {column.texts[i]}".strip() for column in keys) for i in range(len(table.rows))]
    head, *body = _aligned(others).splitlines()
    lines = [head]
    for before, name, line in zip(["", *names], names, body, strict=False):
        lines += [*([f"  {name}"] if name != before else []), line]
    return [_aligned(columns), "\n".join(lines)]


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns, two spaces apart and indented by two."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        ("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in (heads, *rows)
    )


def _aligned(columns: Sequence[_TextColumn]) -> str:
    return aligned([column.head for column in columns], list(zip(*(column.texts for column in columns), strict=True)))


def _columns(table: Table) -> list[_TextColumn]:
    """Those that a terminal shows, each with what stands behind it."""
    found: list[_TextColumn] = []
    for i, column in enumerate(table.columns):
        if column.terminal is None or not (column.always or table.known(i)):
            continue
        cells = [row[i] for row in table.rows]
        if column.within:
            found[-1] = _with_behind(found[-1], column, cells)
        else:
            head = column.terminal or column.head
            found.append(_TextColumn(head, column.key, [_text(cell, column) for cell in cells]))
    return found


def _with_behind(before: _TextColumn, column: Column, cells: Sequence[Cell]) -> _TextColumn:
    """Below each other in a column that shares a heading. Nothing stands behind a text that is unknown."""
    behind = ["" if cell.value is None else column.within.format(_text(cell, column)) for cell in cells]
    if column.group:
        width = max(map(len, behind))
        behind = [text.ljust(width) if column.within.endswith(")") else text.rjust(width) for text in behind]
    head = before.head if column.group else before.head + column.within.format(column.terminal or column.head)
    texts = [text if text == "-" else text + more for text, more in zip(before.texts, behind, strict=True)]
    return _TextColumn(head, before.key, texts)


def _text(cell: Cell, column: Column) -> str:
    return cell.text.translate(PLAIN) if column.numeric or not isinstance(cell.value, str) else cell.text


Spec = tuple[Column, Callable[[Any], Cell]]
"""A column, and how its cell comes from a row."""


def table_of(name: str, title: str, note: str, specs: Iterable[Spec], rows: pd.DataFrame | Iterable[Any]) -> Table:
    """A row per row of a frame, or of what else the specs know to read."""
    columns, cells = zip(*specs, strict=True)
    each = (row for _, row in rows.iterrows()) if isinstance(rows, pd.DataFrame) else rows
    return Table(name, title, note, columns, [[cell(row) for cell in cells] for row in each])


def number_of(name: str, text: Callable[[Any], str]) -> Callable[[Any], Cell]:
    """Of a row, the number in its column `name`, written by `text`."""
    return lambda row: number_cell(row[name], text)


def words_of(name: str) -> Callable[[Any], Cell]:
    """Of a row, the text in its column `name`."""
    return lambda row: text_cell(row[name])


def between(name: str, text: Callable[[Any], str]) -> Callable[[Any], Cell]:
    """Of a row, from the number in its column NAME_low to that in NAME_high."""
    return lambda row: between_cell(row[f"{name}_low"], row[f"{name}_high"], text)


def between_cell(low: Any, high: Any, text: Callable[[Any], str]) -> Cell:
    """`12.3–12.6`; unknown where an end is."""
    return Cell(UNKNOWN, None) if pd.isna(low) or pd.isna(high) else Cell(f"{text(low)}–{text(high)}", float(low))


def number_cell(value: Any, text: Callable[[Any], str]) -> Cell:
    """A number as a cell; NA is unknown."""
    return Cell(UNKNOWN, None) if pd.isna(value) else Cell(text(value), float(value))


def text_cell(value: Any) -> Cell:
    """A text as a cell; an empty one is unknown."""
    return Cell(UNKNOWN, None) if pd.isna(value) or value == "" else Cell(str(value), str(value))


def size_columns(gpu: str) -> list[Spec]:
    """The layout, on the terminal in one column: `16 x 4`."""
    return [
        (Column("nodes"), number_of("nodes", thousands)),
        (Column(f"{gpu}s/node", terminal=f"{gpu}s", within=" x {}"), number_of("gpus_per_node", thousands)),
        (Column(f"{gpu}s", terminal=None), number_of("gpus", thousands)),
    ]


def key_columns(apart: Apart) -> Iterator[Spec]:
    """What tells the series apart, a column each."""

    def cell(key: str, row: Any) -> Cell:
        value = apart[row["series"]][key]
        return Cell(text_of(key, value), value if is_number(value) else text_of(key, value))

    for key in next(iter(apart.values()), {}):
        yield Column(key, numeric=all(is_number(each[key]) for each in apart.values()), key=True), partial(cell, key)


def point_columns(points: pd.DataFrame, apart: Apart) -> list[Spec]:
    """Which point a row is of: its layout, and what tells its series apart."""
    return [*size_columns(unit_of(points)), *key_columns(apart)]


def unit_of(points: pd.DataFrame) -> str:
    """What is counted in the table: `GPU`, on CPUs only `rank`."""
    return unit("cpu") if (points["device"] == "cpu").all() else unit("cuda")


def spread_head(intervals: pd.Series[Any]) -> str:
    """`95 %` or `range`; `spread` where rows have either, or none has any."""
    kinds = set(intervals.dropna())
    return str(kinds.pop()) if len(kinds) == 1 else "spread"


def milli(seconds: float) -> str:
    """`12.3`, ms"""
    return quantity(seconds * 1e3)


def factor(ratio: float) -> str:
    """`1.23×`"""
    return f"{times(ratio)}×"


def giga(rate: float) -> str:
    """`4.56`, 10^9"""
    return quantity(rate * 1e-9)
