"""Finds the tables in a file as it was published: Markdown within a page, LaTeX, CSV, TSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcddp.core.errors import UsageError

Lines = list[tuple[int, list[str]]]
"""(number of the line, its cells), the header first."""

RULE = re.compile(r"[\s|:+=-]*[-=][\s|:+=-]*")
TABULAR = re.compile(
    r"\\begin\{(tabular[x*]?|longtable)\}\s*(?:\[[^\]]*\])?(?:\{(?:[^{}]|\{[^{}]*\})*\})+(.*?)\\end\{\1\}", re.DOTALL
)
LATEX = (
    (r"\\(?:cline|cmidrule)(?:\([^)]*\))?\{[^}]*\}|\\multi(?:column|row)(?:\[[^\]]*\])?\{[^}]*\}\{[^}]*\}", ""),
    (r"(\d)(?:\{,\}|\\,|~)(?=\d{3})", r"\1,"),
    (r"\\([%&_#])", r"\1"),
    (r"\\times", "x"),
    (r"\\pm", "±"),
    (r"\\(?:sim|approx)", "\u2248"),
    (r"\\[a-zA-Z]+\*?(?:\[[^\]]*\])?|\\,|[{}$~]", " "),
)
MARKDOWN = (
    (r"(?:\{\{)?<[^>]*>(?:\}\})?|\[\^\w+\]|[\u2713\u2705\u274c\u2b50\u26a0\ufe0f\U0001f300-\U0001faff†‡]", " "),
    (r"&nbsp;|&#160;", " "),
    (r"!?\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r"\*\*|__|`|~~|(?<!\S)[*](?=\S)|(?<=\S)[*]+(?!\S)", ""),
    (r"\\([|~])", r"\1"),
)
"""Marks that are no part of a cell's text, and what stands for them: bold, code, links, footnotes, line breaks."""


def tables_of(file: Path) -> list[Lines]:
    """Each table with at least a header; UsageError where the file holds none."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a text file in UTF-8 (byte {error.start}); save the table as CSV in UTF-8") from error
    found = [list(_latex(text, match)) for match in TABULAR.finditer(text)] or list(_markdown(text.splitlines()))
    if not found and file.suffix in (".md", ".markdown", ".rst", ".tex"):
        raise UsageError(f"{file}:1: no table; a table has bars between its cells and a line of dashes below its header")
    found = [lines for lines in found or [_separated(file, text)] if lines]
    if not found:
        raise UsageError(f"{file}:1: empty; the first line names the columns, such as nodes,gpus_per_node,time,speedup")
    return found


def _markdown(lines: Sequence[str]) -> Iterator[Lines]:
    """Blocks of lines with bars, of which one is a line of dashes."""
    block: Lines = []
    ruled = False
    for i, line in enumerate([*lines, ""], 1):
        if RULE.fullmatch(line) and (block or "|" in line):
            ruled = True
        elif "|" in line:
            bare = line.strip().removeprefix("|").removesuffix("|")
            block.append((i, [_plain(cell, MARKDOWN) for cell in re.split(r"(?<!\\)\|", bare)]))
        elif not RULE.fullmatch(line):
            if ruled and len(block) > 1:
                yield block
            block, ruled = [], False


def _latex(text: str, match: re.Match[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows end with two backslashes; \\multicolumn stands for as many cells, the text in the first."""
    line = text[: match.start(2)].count("\n") + 1
    for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline", re.sub(r"(?<!\\)%.*", "", match.group(2))):
        cells = list[str]()
        for cell in re.split(r"(?<!\\)&", row):
            several = re.search(r"\\multicolumn\{(\d+)\}", cell)
            cells += [_plain(cell, LATEX), *[""] * (int(several.group(1)) - 1 if several else 0)]
        if any(cells):
            yield line + row.rstrip().count("\n"), cells
        line += row.count("\n")


def _plain(cell: str, marks: Sequence[tuple[str, str]]) -> str:
    for mark, plain in marks:
        cell = re.sub(mark, plain, cell)
    return cell.strip() if re.search(r"\d[\u00a0\u2009\u202f]\d", cell) else " ".join(cell.split())


def _separated(file: Path, text: str) -> Lines:
    """Lines of cells between commas, semicolons, tabulators or bars; lines before the header that begin with `#` are notes."""
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = "\t" if file.suffix == ".tsv" else max(",;\t|", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    lines: Lines = []
    try:
        for cells in reader:
            note = not lines and re.match("#", cells[0] if cells else "") and not re.match(r"#\W*\w*(gpu|node)", cells[0].lower())
            if any(cell.strip() for cell in cells) and not note:
                lines.append((reader.line_num, [_plain(cell, MARKDOWN) for cell in cells]))
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}; quote cells that hold a comma or a quote") from error
    return lines
