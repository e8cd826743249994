"""What a page consists of, before it is written as Markdown or LaTeX: nothing here is formatted, write.py does that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.analysis.report.table import Cell, Column, Table


@dataclass(frozen=True)
class Heading:
    """A heading; the first one of a page is its title."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list, an item a line."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A figure's name; the ending is the format's."""

    name: str
    caption: str


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The first column to the left, the others to the right."""
    columns = [Column(head, numeric=i > 0) for i, head in enumerate(heads)]
    return Table("", "", "", columns, [[Cell(text, text) for text in row] for row in rows])


Block = Heading | Text | Items | Table | Picture
