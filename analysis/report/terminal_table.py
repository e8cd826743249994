"""A table as text: the forms it can have on a terminal, the fullest first. Whoever prints it takes the first that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.analysis.report.table import Cell, Column, Table

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
