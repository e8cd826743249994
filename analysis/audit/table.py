"""Reads someone else's table: each row is a measurement or an average of several, each number an interval."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hpcddp.analysis.audit.cells import (
    NOTES,
    SETTINGS,
    AuditColumn,
    Interval,
    Number,
    Size,
    around,
    column,
    is_blank,
    number,
    seconds,
    size_of,
    typed,
)
from hpcddp.core.errors import UsageError
from hpcddp.core.text import count, thousands

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


MOST_ROWS = 1_000
"""Of a table that somebody could print."""

AVERAGES = ("avg", "avg.", "average", "mean", "ø")
OF_RESULTS = re.compile(
    "mem|util|acc|loss|power|watt|temp|cost|price|mfu|flop|error|score|map|perplexity|latency|time|bandwidth|overhead|comput|comm"
)
"""Names of results that audit does not know: they tell no rows apart."""

Config = tuple[int | None, int | None, int | None, int | None, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Row:
    """One line. Times are seconds; what is not there is None or not in `numbers`."""

    line: int
    nodes: int | None
    gpus_per_node: int | None
    gpus: int | None
    words: tuple[str, ...]
    """Cells that tell rows apart, in the order of AuditTable.apart."""
    numbers: Mapping[str, Number]
    """By the key of the column; rates of one GPU as those of all."""
    summary: bool = False
    """Whether it is the average of others."""
    node_list: str | None = None
    gpu_type: str | None = None
    run: str | None = None

    @property
    def batch(self) -> int | None:
        return self.count("batch_per_gpu")

    @property
    def size(self) -> int:
        """GPUs; nodes where the table does not tell GPUs."""
        return self.gpus or self.nodes or 1

    @property
    def config(self) -> Config:
        return (self.nodes, self.gpus_per_node, self.gpus, self.batch, self.words)

    @property
    def layout(self) -> str:
        """`4x1` (nodes x GPUs per node), `4 GPUs`, `2 nodes`."""
        if self.nodes and self.gpus_per_node:
            return f"{self.nodes}x{self.gpus_per_node}"
        return count(self.gpus, "GPU") if self.gpus else count(self.size, "node")

    def count(self, key: str) -> int | None:
        return int(self.numbers[key].value) if key in self.numbers else None

    def value(self, key: str) -> Interval | None:
        return self.numbers[key].interval if key in self.numbers else None


@dataclass(frozen=True)
class AuditTable:
    """Rows in the file's order, and what the headers said."""

    file: Path
    name: str
    rows: tuple[Row, ...]
    apart: tuple[AuditColumn, ...]
    """Columns of words, and of settings in numbers, that tell rows apart."""
    columns: Mapping[str, AuditColumn]
    """Key -> column of numbers."""
    remarks: tuple[str, ...]

    @cached_property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if not row.summary]

    @cached_property
    def metrics(self) -> list[str]:
        """Keys of times, then of rates, that some row has; averages are of the first."""
        keys = [key for meaning in ("time", "throughput") for key, each in self.columns.items() if each.meaning == meaning]
        return [key for key in keys if any(key in row.numbers for row in self.rows)] or ["time"]

    def is_each(self, key: str) -> bool:
        """Whether a column holds rates of one GPU."""
        return key in self.columns and self.columns[key].each


def read_tables(file: Path) -> list[AuditTable]:
    """The tables of a file that can be audited; UsageError names file, line and what to write where none can."""
    found, errors = [], []
    blocks = tables_of(file)
    for lines in blocks:
        try:
            found.append(_table(file, file.name if len(blocks) == 1 else f"{file.name}:{lines[0][0]}", lines))
        except UsageError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _table(file: Path, name: str, lines: Lines) -> AuditTable:
    (at, header), body = lines[0], lines[1:]
    if len(body) > MOST_ROWS:
        raise UsageError(
            f"{file}: {thousands(len(body))} rows, but at most {thousands(MOST_ROWS)} are audited; "
            f"omit rows that are not published"
        )
    if not body:
        raise UsageError(f"{file}:{at}: a header and no rows; add a row for each measurement")
    for line, cells in body:
        if any(cells[len(header) :]):
            raise UsageError(f"{file}:{line}: {len(cells)} cells under {len(header)} headers; quote cells that hold a separator")
    body = [(line, [*cells, *[""] * len(header)][: len(header)]) for line, cells in body]
    columns = typed([(text, [cells[i] for _, cells in body]) for i, text in enumerate(header)], f"{file}:{at}")
    unread: dict[str, tuple[int, str]] = {}
    rows = list(_rows(columns, body, unread))
    if not any(row.numbers for row in rows):
        line, what = next(iter(unread.values()), (body[0][0], "neither nodes nor gpus is filled in; fill in the row's size"))
        raise UsageError(f"{file}:{line}: {what}")
    words = [
        *(each for each in columns if each.meaning is None),
        *(AuditColumn(name, None, name) for name in ("size", "gpu_type")),
    ]
    apart = [i for i, each in enumerate(words) if _separates(each, i, rows)]
    rows = [replace(row, words=tuple(row.words[i] for i in apart)) for row in rows]
    sized = {row.line for row in rows}
    lost = [line for line, _ in body if line not in sized]
    remarks = [f"line {line} is not read: it has no number of GPUs or nodes, or summarizes other rows" for line in lost]
    remarks += [f"line {line}: {what}" for line, what in unread.values() if line in sized]
    keyed = {each.key: each for each in columns if each.key}
    return AuditTable(file, name, tuple(rows), tuple(words[i] for i in apart), keyed, tuple(remarks))


def _rows(columns: Sequence[AuditColumn], body: Lines, unread: dict[str, tuple[int, str]]) -> Iterator[Row]:
    """Those that tell their size; words left of it stand for the empty cells below. `unread`: header -> line, what is wrong."""
    sized = min((i for i, each in enumerate(columns) if each.kind == "size"), default=0)
    above, averaged = [""] * len(columns), any(cell.lower() in AVERAGES for _, cells in body for cell in cells)
    for line, cells in body:
        above = [cell or above[i] * (i < sized) for i, cell in enumerate(cells)]
        apart = [above[i] for i, each in enumerate(columns) if each.meaning is None]
        words, sizes, numbers = dict[str, str](), list[Size](), dict[str, Number]()
        for cell, each in zip(cells, columns, strict=True):
            try:
                if each.meaning is None or is_blank(cell) or cell.lower() in AVERAGES:
                    continue
                if each.kind == "word":
                    words[each.meaning or ""] = cell
                elif each.kind == "size":
                    sizes.append(_size(cell, each.meaning))
                else:
                    numbers[each.key] = _number(cell, each)
            except ValueError as error:
                unread.setdefault(each.header, (line, f"{each.header}: {error}"))
        size = _combined(sizes)
        if (size.nodes is None and size.gpus is None) or {"median", "std", "min", "max"} & {cell.lower() for cell in cells}:
            continue
        each_of = {each.key: size.gpus or 1 for each in columns if each.each}
        numbers = {key: shown.times(each_of.get(key, 1)) for key, shown in numbers.items()}
        words = {"gpu_type": size.gpu_type} | words if size.gpu_type else words
        summary = any(cell.lower() in AVERAGES for cell in cells)
        apart += [size.rest, "" if averaged else words.get("gpu_type", "")]  # averages may be over several types
        yield Row(line, size.nodes, size.per_node, size.gpus, tuple(apart), numbers, summary, **words)


def lines_of(rows: Iterable[Row]) -> tuple[int, ...]:
    """Of the file."""
    return tuple(row.line for row in rows)


def _size(cell: str, meaning: str) -> Size:
    found = size_of(cell, meaning)
    if found is None or not all(each is None or 0 < each < 10**7 for each in (found.nodes, found.per_node, found.gpus)):
        raise ValueError(f"`{cell}` is not a whole number of GPUs or nodes")
    return found


def _combined(sizes: Sequence[Size]) -> Size:
    """What several cells tell of one size, each of nodes, GPUs per node and GPUs from both others where it is not told."""
    given = {name: [found for each in sizes if (found := getattr(each, name))] for name in ("nodes", "per_node", "gpus")}
    nodes, per_node, gpus = (next(iter(found), None) for found in given.values())
    if nodes and gpus and not per_node and gpus % nodes == 0:
        per_node = gpus // nodes
    if per_node and gpus and not nodes and gpus % per_node == 0:
        nodes = gpus // per_node
    kind, rest = ("".join(dict.fromkeys(getattr(each, name) for each in sizes)) for name in ("gpu_type", "rest"))
    return Size(nodes, per_node, nodes * per_node if nodes and per_node else gpus, kind, rest)


def _number(cell: str, each: AuditColumn) -> Number:
    """What was measured, by the unit in the cell, else by the header."""
    match = re.search(r"\d[\s\d.,]*([a-zA-Z]+\s*(?:/|\bper\b)\s*[a-zA-Z/]+)$", cell)
    own = column(f"({match.group(1)})") if match and each.kind == "measured" else each
    said = own if own.kind == "measured" else each
    if said.meaning == "time" and not said.inverse:
        return seconds(cell, said.unit)
    found = number(cell, said.scale)
    if each.kind == "count" and found.value != int(found.value):
        raise ValueError(f"`{cell}` is not a whole number from 1 on")
    if each.decimals and found.value == each.scale == 1 and not found.decimals:
        return replace(found, interval=around(1.0, 10.0**-each.decimals))
    ends = found.interval
    return replace(found, interval=Interval(1 / ends.high, 1 / ends.low, 1 / ends.best), inverse=True) if said.inverse else found


def _separates(each: AuditColumn, i: int, rows: Sequence[Row]) -> bool:
    """Words do, and numbers that recur, or differ at one size (settings); results, notes and names of single sizes do not."""
    cells = [(row.size, row.words[i].lower()) for row in rows if not row.summary]
    filled = {cell for _, cell in cells if not is_blank(cell)}
    sizes, kinds = ({pair[at] for pair in cells} for at in (0, 1))
    if NOTES.search(each.name) or len(kinds) < 2:
        return False
    if SETTINGS.fullmatch(each.name) or re.search("model|network|dataset|architecture", each.name):
        return True
    if any(re.match(r"[~\u2248<>+-]?\s*[$€]?\s*\d", cell) for cell in filled):
        result = each.unit or OF_RESULTS.search(each.name) or not all(re.fullmatch(r"[\d.]{1,7}[bkm]?", cell) for cell in filled)
        if result or (len(filled) == len(cells) and len(set(cells)) == len(sizes)):
            return False
    return not len(set(cells)) == len(sizes) == len(kinds)
