"""What a page consists of, and the page as Markdown or LaTeX; every text is escaped here, once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.report.write import latex_tabular, latex_text, markdown_table, markdown_text

_AT_START = re.compile(r"^(\d+)([.)])|^([+-])(?= )")
"""What Markdown takes for a list at the beginning of a line."""

CellOf = Callable[[Any], Cell]
"""A cell of a row, as the report's tables have it."""


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


def rows_table(columns: Mapping[str, CellOf], rows: Iterable[Any], unknown: str = "unknown") -> Table:
    """`columns`: head -> the cells below it."""
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    return text_table(list(columns), [[unknown if cell.value is None else cell.text for cell in row] for row in cells])


Block = Heading | Text | Items | Table | Picture


def to_markdown(blocks: Sequence[Block]) -> str:
    """As GitHub reads it; the first heading is the page's."""
    return "\n".join(_markdown(block, i == 0) for i, block in enumerate(blocks))


def to_latex(blocks: Sequence[Block]) -> str:
    """A part of a document; figures need the package graphicx."""
    return "\n".join(_latex(block, i == 0) for i, block in enumerate(blocks))


def _markdown(block: Block, first: bool) -> str:
    match block:
        case Heading():
            return f"{'#' if first else '##'} {markdown_text(block.text)}\n"
        case Text():
            return f"{_line(block.text)}\n"
        case Items():
            return "".join(f"- {_line(text)}\n" for text in block.texts)
        case Picture():
            return f"![{markdown_text(block.caption)}]({block.name}.png)\n\n{_line(block.caption)}\n"
        case Table():
            return markdown_table(block)


def _line(text: str) -> str:
    return _AT_START.sub(lambda found: rf"{found[1]}\{found[2]}" if found[1] else rf"\{found[3]}", markdown_text(text))


def _latex(block: Block, first: bool) -> str:
    match block:
        case Heading():
            return rf"\{'section' if first else 'subsection'}*{{{_plain(block.text)}}}" + "\n"
        case Text():
            return f"{_bracketed(block.text)}\n"
        case Items():
            items = "".join(rf"\item {_bracketed(text)}" + "\n" for text in block.texts)
            return r"\begin{itemize}" + f"\n{items}" + r"\end{itemize}" + "\n"
        case Picture():
            caption = rf"\caption{{{_plain(block.caption)}}}"
            picture = rf"\includegraphics[width=\linewidth]{{{block.name}.pdf}}"
            return "\n".join([r"\begin{figure}[ht]", r"\centering", picture, caption, r"\end{figure}", ""])
        case Table():
            return "\n".join([r"\begin{center}", *latex_tabular(block, _plain), r"\end{center}", ""])


def _plain(text: str) -> str:
    """LaTeX would make one long dash of two short ones."""
    return latex_text(text.replace("--", "-\0-")).replace("\0", "{}")


def _bracketed(text: str) -> str:
    """A `[` at the start would be read as an argument of what stands before."""
    escaped = _plain(text)
    return f"{{}}{escaped}" if escaped.startswith("[") else escaped
