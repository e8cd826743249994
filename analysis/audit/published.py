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
TABULAR = re.compile(r"\\begin\{(tabular[x*]?|longtable)\}(.*?)\\end\{\1\}", re.DOTALL)
LATEX_RULE = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|centering|small|(?:cline|cmidrule)(?:\([^)]*\))?(?:\[[^\]]*\])?\{[^}]*\}|addlinespace)(?:\[[^\]]*\])?"
)
MARKS = {
    r"\%": "%",
    r"\&": "&",
    r"\_": "_",
    r"\#": "#",
    r"\times": "x",
    r"\pm": "±",
    r"\sim": "~",
    r"\approx": "~",
    r"\,": " ",
    "~": " ",
}


def tables_of(file: Path) -> list[Lines]:
    """Each table with at least a header; UsageError where the file holds none."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a text file in UTF-8 (byte {error.start}); save the table as CSV in UTF-8") from error
    if r"\begin{tab" in text or r"\begin{longtable}" in text:
        found = [list(_latex(text, match)) for match in TABULAR.finditer(text)]
    else:
        found = list(_markdown(text.splitlines()))
        if not found and file.suffix in (".md", ".markdown", ".rst", ".tex"):
            raise UsageError(f"{file}:1: no table; a table has bars between its cells and a line of dashes below its header")
        found = found or [_separated(file, text)]
    if not any(found):
        raise UsageError(f"{file}:1: empty; the first line names the columns, such as nodes,gpus_per_node,time,speedup")
    return [lines for lines in found if lines]


def _markdown(lines: Sequence[str]) -> Iterator[Lines]:
    """Blocks of lines with bars, of which one is a line of dashes."""
    block: Lines = []
    ruled = False
    for i, line in enumerate([*lines, ""], 1):
        if "|" in line or (block and RULE.fullmatch(line)):
            if RULE.fullmatch(line):
                ruled = True
            else:
                bare = line.strip().removeprefix("|").removesuffix("|")
                block.append((i, [_plain(cell) for cell in re.split(r"(?<!\\)\|", bare)]))
        elif not RULE.fullmatch(line) or not line.strip():
            if ruled and len(block) > 1:
                yield block
            block, ruled = [], False


def _plain(cell: str) -> str:
    """Without bold and code marks, links, footnotes and line breaks."""
    text = re.sub(r"<[^>]*>|\[\^\w+\]|[\u2713\u2705\u274c\u2b50\u26a0\ufe0f\U0001f300-\U0001faff†‡]", " ", cell)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*\*|__|`|~~|(?<!\S)[*](?=\S)|(?<=\S)[*]+(?!\S)", "", text).replace(r"\|", "|").replace(r"\~", "~")
    return " ".join(text.split()) if not re.search(r"\d[\u00a0\u2009\u202f]\d", text) else text.strip()


def _latex(text: str, match: re.Match[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows end with two backslashes; \\multicolumn stands for as many cells, the text in the first."""
    body = re.sub(
        r"^\s*(?:\[[^\]]*\])?(?:\{(?:[^{}]|\{[^{}]*\})*\})+",
        lambda spec: "\n" * spec.group().count("\n"),
        match.group(2),
        count=1,
    )
    body = re.sub(r"(?<!\\)%.*", "", body)
    line = text[: match.start(2)].count("\n") + 1
    for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline", body):
        bare = LATEX_RULE.sub(" ", row)
        start = line + row[: len(row) - len(row.lstrip())].count("\n") + bare[: len(bare) - len(bare.lstrip())].count("\n") * 0
        line += row.count("\n")
        cells = [text for cell in re.split(r"(?<!\\)&", bare) for text in _latex_cells(cell)]
        if any(cells):
            yield (line if row.count("\n") else start), cells


def _latex_cells(cell: str) -> list[str]:
    several = re.search(r"\\multicolumn\{(\d+)\}\{[^}]*\}", cell)
    text = re.sub(r"\\multicolumn\{\d+\}\{[^}]*\}|\\multirow(?:\[[^\]]*\])?\{[^}]*\}\{[^}]*\}", "", cell)
    text = re.sub(r"(\d)(?:\{,\}|\\,|~)(?=\d{3})", r"\1,", text).replace(r"$\sim$", "\u2248").replace(r"\sim", "\u2248")
    for mark, plain in MARKS.items():
        text = text.replace(mark, plain)
    text = re.sub(r"\\[a-zA-Z]+\*?|[{}$]", " ", text)
    return [" ".join(text.split()), *[""] * (int(several.group(1)) - 1 if several else 0)]


def _separated(file: Path, text: str) -> Lines:
    """Lines of cells between commas, semicolons, tabulators or bars; `#` before the header begins a note."""
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = "\t" if file.suffix == ".tsv" else max(",;\t|", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    lines: Lines = []
    try:
        for cells in reader:
            note = (
                not lines
                and cells
                and cells[0].startswith("#")
                and (len(cells) == 1 or not re.match(r"#\W*\w*(gpu|node)", cells[0], re.IGNORECASE))
            )
            if any(cell.strip() for cell in cells) and not note:
                lines.append((reader.line_num, [_plain(cell) for cell in cells]))
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}; quote cells that hold a comma or a quote") from error
    return lines
