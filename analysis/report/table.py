"""A table as a value: columns with their heads, cells with what they sort by. Writers make it HTML, Markdown, LaTeX or text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, groupby

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
    heads, rows = [column.head for column in columns], _rows(columns)
    if not any(column.key for column in columns):
        return [aligned(heads, rows)]
    names = [", ".join(f"{column.head} {column.texts[i]}" for column in columns if column.key) for i in range(len(rows))]
    others = [column for column in columns if not column.key]
    head, *body = aligned([column.head for column in others], _rows(others)).splitlines()
    lines = [head]
    for before, name, line in zip(["", *names], names, body, strict=False):
        lines += [*([f"  {name}"] if name != before else []), line]
    return [aligned(heads, rows), "\n".join(lines)]


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns, two spaces apart and indented by two."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        ("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in (heads, *rows)
    )


def _rows(columns: Sequence[_TextColumn]) -> list[list[str]]:
    return [list(row) for row in zip(*(column.texts for column in columns), strict=True)]


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
