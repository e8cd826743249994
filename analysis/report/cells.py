"""Cells of a study's tables: how a row of a frame becomes one, and the columns that say which point a row is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd

from hpcddp.analysis.report.table import UNKNOWN, Cell, Column, Table
from hpcddp.analysis.study.axes import is_number
from hpcddp.analysis.study.series import Apart, text_of
from hpcddp.analysis.util.wording import quantity, unit

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


def between(low: str, high: str, text: Callable[[Any], str]) -> Callable[[Any], Cell]:
    """Of a row, from the number in its column `low` to that in `high`."""
    return lambda row: between_cell(row[low], row[high], text)


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
        (Column("nodes"), number_of("nodes", str)),
        (Column(f"{gpu}s/node", terminal=f"{gpu}s", within=" x {}"), number_of("gpus_per_node", str)),
        (Column(f"{gpu}s", terminal=None), number_of("gpus", str)),
    ]


def key_columns(apart: Apart) -> Iterator[Spec]:
    """What tells the series apart, a column each."""
    for key in next(iter(apart.values()), {}):
        yield Column(key, numeric=all(is_number(each[key]) for each in apart.values()), key=True), _key(apart, key)


def _key(apart: Apart, key: str) -> Callable[[Any], Cell]:
    def cell(row: Any) -> Cell:
        value = apart[row["series"]][key]
        return Cell(text_of(key, value), value if is_number(value) else text_of(key, value))

    return cell


def unit_of(points: pd.DataFrame) -> str:
    """What is counted in the table: `GPU`, on CPUs only `rank`."""
    return unit("cpu") if (points["device"] == "cpu").all() else unit("cuda")


def milli(seconds: float) -> str:
    """`12.3`, ms"""
    return quantity(seconds * 1e3)


def giga(rate: float) -> str:
    """`4.56`, 10^9"""
    return quantity(rate * 1e-9)
