"""A report's tables for other documents: Markdown as GitHub reads it, LaTeX as plain `tabular` that needs no package."""

from __future__ import annotations

import re
from collections.abc import Callable

from hpcddp.analysis.report.table import Table
from hpcddp.analysis.study.trained import Facts, fact_text

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""What is written as code in a sentence."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&$!])")

_LATEX = {
    **{
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    },
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{"–": "--", "×": r"$\times$", "µ": r"$\mu$", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
}


def markdown_table(table: Table) -> str:
    """Numbers to the right."""
    rules = ["---:" if column.numeric else ":---" for column in table.columns]
    heads = [markdown_text(column.name) for column in table.columns]
    rows = [[markdown_text(cell.text) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *rows)) + "\n"


def markdown_text(text: str) -> str:
    """One line in which nothing is markup, HTML included."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def markdown_prose(text: str) -> str:
    """The same but for what stands between backticks, which stays code: nothing in it is markup either."""
    pieces = CODE.split(" ".join(text.split()))
    return "".join(f"`{piece}`" if i % 2 else _MARKDOWN.sub(r"\\\1", piece) for i, piece in enumerate(pieces))


def latex_table(table: Table, trained: Facts) -> str:
    """To be `\\input` where a table belongs, with what was trained below it; the caption is the document's own."""
    facts = "; ".join(f"{name} {fact_text(values)}" for name, values in trained.items())
    below = [rf"\par{{\footnotesize {latex_text(facts)}.\par}}"] if facts else []
    return "\n".join([f"% {table.title}. {table.note}", *latex_tabular(table, _latex_cell), *below, ""])


def latex_tabular(table: Table, text: Callable[[str], str]) -> list[str]:
    """Its lines; `text` escapes a cell."""
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    heads = [_groups(table)] if any(column.group for column in table.columns) else []
    heads.append(" & ".join(latex_text(column.head) for column in table.columns) + r" \\")
    rows = [" & ".join(text(cell.text) for cell in row) + r" \\" for row in table.rows]
    rule = r"\hline"
    return [rf"\begin{{tabular}}{{{alignment}}}", rule, *heads, rule, *rows, rule, r"\end{tabular}"]


def latex_text(text: str) -> str:
    """Text in which no character is a command."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))


def _latex_cell(text: str) -> str:
    return latex_text(text).replace(r" \%", r"\,\%")


def _groups(table: Table) -> str:
    """A cell for each run of columns of one group."""
    cells = [
        rf"\multicolumn{{{width}}}{{c}}{{{latex_text(group)}}}" if group else " & " * (width - 1) for group, width in table.groups
    ]
    return " & ".join(cells) + r" \\"
