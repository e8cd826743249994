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
