"""Reads someone else's table: each row is a measurement or a summary of several, each number an interval."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hpcddp.analysis.audit.cells import Interval, Number, inverse, is_blank, number, seconds
from hpcddp.analysis.audit.columns import CLAIMS, CONFIGURATION, MEANINGS, NOTES, SUBJECT, TIMES, Column, column
from hpcddp.analysis.audit.published import Lines, tables_of
from hpcddp.analysis.audit.sizes import Size, size_of
from hpcddp.core.errors import UsageError
from hpcddp.core.text import count

MOST_ROWS, MOST_COLUMNS = 20_000, 200
"""Of a table that somebody could print; more are measurements, and take minutes."""

COUNTS = ("batch_per_gpu", "global_batch", "batch", "samples", "epochs", "steps", "accumulation")
SIZES = ("nodes", "gpus_per_node", "gpus")
WORDS = ("node_list", "gpu_type", "run", "scaling")
MEASURED = ("time", "throughput")
SUMMARIES = {"avg": "mean", "avg.": "mean", "average": "mean", "mean": "mean", "ø": "mean", "median": "median"}
OF_RESULTS = re.compile(
    "mem|util|acc|loss|power|watt|temp|cost|price|mfu|flop|error|score|map|perplexity|latency|time|bandwidth|overhead"
)
"""Names of results that audit does not know: they tell no rows apart."""
OTHER_SIZES = ("workers", "threads", "cores", "processors", "cpus")
"""What is counted in a table without GPUs and nodes."""
FEW = 3
"""Digits that count, and rows that show as much."""

Config = tuple[int | None, int | None, int | None, int | None, tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """One line. Times are seconds; what is not there is None or not in `values`."""

    line: int
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    words: tuple[str, ...] = ()
    """Cells that tell rows apart, in the order of Table.apart."""
    node_list: str | None = None
    gpu_type: str | None = None
    run: str | None = None
    scaling: str | None = None
    summary: str | None = None
    """`mean` or `median` for a row that summarises others."""
    counts: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Number] = field(default_factory=dict)
    """Key of a column -> what it measured; rates of one GPU as those of all."""
    claims: Mapping[int, Number] = field(default_factory=dict)
    """By the number of the column in Table.claims."""

    @property
    def batch(self) -> int | None:
        return self.counts.get("batch_per_gpu")

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

    def value(self, key: str) -> Interval | None:
        found = self.values.get(key)
        return found.interval if found else None


@dataclass(frozen=True)
class AuditTable:
    """Rows in the file's order, and what the headers said."""

    file: Path
    name: str
    rows: tuple[Row, ...]
    claims: tuple[Column, ...]
    """Columns of speedups and efficiencies."""
    apart: tuple[Column, ...]
    """Columns of words, and of settings in numbers, that tell rows apart."""
    columns: Mapping[str, Column]
    """Key -> column, of what was measured."""
    remarks: tuple[str, ...]
    unread: int = 0
    """Rows that tell no size."""

    @cached_property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.summary is None]

    @cached_property
    def metrics(self) -> list[str]:
        """Keys of times, then of rates, that some row has."""
        keys = [key for meaning in MEASURED for key, each in self.columns.items() if each.meaning == meaning]
        return [key for key in keys if any(key in row.values for row in self.rows)] or ["time"]

    def is_each(self, key: str) -> bool:
        """Whether a column holds rates of one GPU."""
        return key in self.columns and self.columns[key].each

    @property
    def metric(self) -> str:
        """What averages are of: time where there is any."""
        return self.metrics[0]


def read_tables(file: Path) -> list[AuditTable]:
    """The tables of a file that can be audited; UsageError names file, line and what to write where none can."""
    found, errors = [], []
    blocks = tables_of(file)
    for lines in blocks:
        try:
            name = file.name if len(blocks) == 1 else f"{file.name}:{lines[0][0]}"
            found.append(_table(file, name, lines))
        except UsageError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _table(file: Path, name: str, lines: Lines) -> AuditTable:
    for number_, most, what in ((len(lines) - 1, MOST_ROWS, "rows"), (len(lines[0][1]), MOST_COLUMNS, "columns")):
        if number_ > most:
            raise UsageError(f"{file}: {number_:,} {what}, and at most {most:,} are audited; leave out what is not published")
    lines = _upright(_one_header(lines))
    (at, header), body = lines[0], lines[1:]
    if not body:
        raise UsageError(f"{file}:{at}: a header and no rows; add a row for each measurement")
    for line, cells in body:
        if len(cells) > len(header) and any(cells[len(header) :]):
            raise UsageError(f"{file}:{line}: {len(cells)} cells under {len(header)} headers; quote cells that hold a separator")
    body = [(line, [*cells, *[""] * len(header)][: len(header)]) for line, cells in body]
    columns = _columns(file, at, header, body)
    reader = _Reader(file, columns, body)
    rows = [row for line, cells in body if (row := reader.row(line, cells))]
    reader.check(bool(rows))
    if not rows:
        raise UsageError(f"{file}:{body[0][0]}: neither nodes nor gpus is filled in, so the row's size is not known; fill in one")
    reader.check_units(rows)
    claims = tuple(_in_percent([each for each in columns if each.meaning in CLAIMS], rows))
    apart = [i for i, each in enumerate(reader.words) if _separates(each, i, rows)]
    rows = [replace(row, words=tuple(row.words[i] for i in apart)) for row in rows]
    unread = [f"column `{each.header}` is not read{near}" for each in columns if not each.meaning and (near := _nearest(each))]
    return AuditTable(
        file,
        name,
        tuple(_to_their_digits(_batches_named(rows), columns)),
        claims,
        tuple(reader.words[i] for i in apart),
        {each.key: each for each in columns if each.key},
        (*reader.remarks, *unread),
        len(body) - len(rows),
    )


def _one_header(lines: Lines) -> Lines:
    """A header of two lines, groups of columns above their names, as one."""
    names = [[column(cell).meaning for cell in cells] for _, cells in lines[:2]]
    if (
        len(lines) < 3
        or not set(names[1]) & set(SIZES)
        or set(names[0]) & set(SIZES)
        or any(cell[:1].isdigit() for cell in lines[1][1])
    ):
        return lines
    header, above = [], ""
    for i, cell in enumerate(lines[1][1]):
        above = next((text for text in lines[0][1][i : i + 1] if text), above)
        header.append(f"{above} {cell}".strip())
    return [(lines[1][0], header), *lines[2:]]


def _upright(lines: Lines) -> Lines:
    """A table with a column for each size as one with a row for each."""
    (at, header), rows = lines[0], lines[1:]
    sizes = [size_of(cell) for cell in header[1:]]
    if len(header) < 3 or not all(sizes):
        return lines
    if {column(cells[0]).meaning for _, cells in rows} & {*MEASURED, *CLAIMS}:
        names = ["GPUs", *(cells[0] for _, cells in rows)]
        return [(at, names)] + [
            (at, [cell, *("".join(cells[i : i + 1]) for _, cells in rows)]) for i, cell in enumerate(header) if i
        ]
    unit = re.search(r"\(([^)]*)\)", header[1])
    if not unit or column(unit.group()).meaning not in MEASURED:
        return lines
    cells = [(line, [row[0], header[i], row[i]]) for line, row in rows for i in range(1, len(row)) if i < len(header)]
    return [
        (at, [header[0], "GPUs", unit.group()]),
        *((line, [one, re.sub(r"\(.*", "", size), cell]) for line, (one, size, cell) in cells),
    ]


def _columns(file: Path, line: int, header: Sequence[str], body: Lines) -> list[Column]:
    """A Column for each header: by its words, and by its cells where it says nothing."""
    columns = [_by_content(column(text), [cells[i] for _, cells in body]) for i, text in enumerate(header)]
    for meaning in (*SIZES, *COUNTS, *WORDS):
        twins = [i for i, each in enumerate(columns) if each.meaning == meaning]
        chosen = next((i for i in twins if columns[i].name == meaning), twins[0] if twins else None)
        for i in twins:
            columns[i] = columns[i] if i == chosen else replace(columns[i], meaning=None)
    meanings = {each.meaning for each in columns}
    if not meanings & {"gpus", "nodes"}:
        in_words = [i for i, each in enumerate(columns) if _all_sizes([cells[i] for _, cells in body])]
        in_words += [i for i, each in enumerate(columns) if each.name in OTHER_SIZES]
        if not in_words:
            raise _missing(file, line, columns, "says how many GPUs a row used", "gpus, or nodes and gpus_per_node")
        columns[in_words[0]] = replace(columns[in_words[0]], meaning="gpus")
    if not meanings & {*MEASURED, "average", "median", *CLAIMS, "steps"}:
        raise _missing(file, line, columns, "holds a result", "time, throughput, average, speedup, efficiency")
    if not meanings & set(MEASURED):
        columns = [
            replace(each, meaning="time")
            if each.meaning in ("average", "median") and (each.unit or "time" in each.name)
            else each
            for each in columns
        ]
    keys = set[str]()
    for i, each in enumerate(columns):
        if each.meaning in {*TIMES, "throughput", "bandwidth", "utilization"}:
            key = each.meaning if each.meaning not in keys else f"{each.meaning} {i}"
            keys.add(key)
            columns[i] = replace(each, key=key)
    return columns


def _by_content(each: Column, cells: Sequence[str]) -> Column:
    """`node`, `gpu` and `hardware` are names, or sizes where all their cells are; a `batch` of words is none."""
    filled = [cell for cell in cells if not is_blank(cell)]
    if (
        each.meaning in ("node_list", "gpu_type")
        and filled
        and all(cell.isdigit() or re.match(r"\d+\s*[x×]", cell) for cell in filled)
    ):
        return replace(each, meaning={"node_list": "nodes", "gpu_type": "gpus"}[each.meaning])
    if each.meaning == "scaling" and filled and all(re.match(r"[\d.]+\s*[x×%]?$", cell) for cell in filled):
        return replace(each, meaning="efficiency" if "%" in filled[0] else "speedup")
    numbers = sum(bool(re.match(r"[~\u2248]?\s*[\d.]*\d", cell)) for cell in filled)
    if (
        each.meaning in {*TIMES, *COUNTS, "throughput", "bandwidth", "utilization"}
        and filled
        and not numbers
        and each.name not in MEANINGS
    ):
        return replace(each, meaning=None)
    return each


def _all_sizes(cells: Sequence[str]) -> bool:
    """Whether most cells tell a size in words, not as bare numbers."""
    found = [size_of(cell) for cell in cells if not is_blank(cell) and not cell.isdigit()]
    return len(found) > 0 and sum(each is not None for each in found) * 2 > len(found)


def _missing(file: Path, line: int, columns: Sequence[Column], what: str, names: str) -> UsageError:
    near = [f"`{each.header}`{_nearest(each)}" for each in columns if each.meaning is None and _nearest(each)]
    found = f" ({'; '.join(near)})" if near else ""
    return UsageError(f"{file}:{line}: no column {what}{found}; name one {names}")


def _nearest(each: Column) -> str:
    near = difflib.get_close_matches(each.name, MEANINGS, n=1, cutoff=0.85) if each.name not in CONFIGURATION | NOTES else []
    return f"; did you mean `{near[0]}`?" if near else ""


class _Reader:
    """Reads rows, and remembers what it could not read."""

    def __init__(self, file: Path, columns: Sequence[Column], body: Lines) -> None:
        self.file, self.columns, self.body = file, columns, body
        self.remarks: list[str] = []
        self.words = [each for each in columns if each.meaning in (None, "rest")] + [Column("size", None, "size")]
        self.numbers = dict.fromkeys((each.header for each in columns), 0)
        self.errors: dict[str, tuple[int, ValueError]] = {}
        sized = min((i for i, each in enumerate(columns) if each.meaning in SIZES), default=0)
        self.carried = dict.fromkeys(range(sized), "")
        """Words left of the size, which stand for the empty cells below them."""

    def row(self, line: int, cells: Sequence[str]) -> Row | None:
        """The row of a line; None, with a remark, where it tells no size."""
        for i, before in self.carried.items():
            self.carried[i] = cells[i] or before
        words, apart, sizes = dict[str, str](), list[str](), list[Size]()
        counts, values, claims = dict[str, int](), dict[str, Number](), dict[int, Number]()
        claimed, errors = -1, dict[str, tuple[int, ValueError]]()
        summary = next((SUMMARIES[cell.lower()] for cell in cells if cell.lower() in SUMMARIES), None)
        for i, each in enumerate(self.columns):
            cell = cells[i]
            claimed += each.meaning in CLAIMS
            if each.meaning is None:
                apart.append(self.carried.get(i, cell))
                continue
            if is_blank(cell) and not (each.meaning in SIZES and self.carried.get(i)):
                continue
            if each.meaning in WORDS:
                words |= {each.meaning: cell} if cell.lower() not in SUMMARIES else {}
                continue
            try:
                if each.meaning in SIZES:
                    sizes.append(_size(cell or self.carried[i], each.meaning))
                elif each.meaning in COUNTS:
                    counts[each.meaning] = _count(cell)
                elif each.meaning in CLAIMS:
                    claims[claimed] = _positive(number(cell))
                else:
                    values[each.key] = _value(cell, each, self.columns)
                self.numbers[each.header] += 1
            except ValueError as error:
                errors.setdefault(each.header, (line, error))
        size = _size_of_cells(sizes)
        if size.nodes is None and size.gpus is None:
            self.errors |= {each: error for each, error in errors.items() if not self.numbers[each] and len(self.body) == 1}
            self.remarks.append(f"line {line} is not read: it tells no number of GPUs or nodes")
            return None
        self.errors = errors | self.errors
        counts |= {} if size.gpus is None else {"gpus": size.gpus}
        nodes, per_node, gpus = _complete(size)
        values = {key: each.times(gpus) if gpus and self._each(key) else each for key, each in values.items()}
        words = {"gpu_type": size.gpu_type} | words if size.gpu_type else words
        labels = (*apart, size.rest)
        return Row(line, nodes, per_node, gpus, labels, summary=summary, counts=counts, values=values, claims=claims, **words)

    def check_units(self, rows: Sequence[Row]) -> None:
        """UsageError where one column of rates holds two units."""
        for key in (each.key for each in self.columns if each.meaning == "throughput"):
            units = {
                re.sub("^[kKMGB](?: |$|(?=[a-z]*/))", "", row.values[key].unit).lower() for row in rows if key in row.values
            } - {""}
            if len(units) > 1 and not all(column(f"({unit})").meaning == "throughput" for unit in units):
                both = " and ".join(f"`{unit}`" for unit in sorted(units))
                raise UsageError(f"{self.file}: {key} is in {both}; give one unit for the whole column")

    def _each(self, key: str) -> bool:
        return next(each.each for each in self.columns if each.key == key)

    def check(self, any_row: bool) -> None:
        """A remark for each column with a cell that cannot be read; UsageError where no result can."""
        results = [each.header for each in self.columns if each.key or each.meaning in (*CLAIMS, *COUNTS)]
        for header, (line, error) in self.errors.items():
            if not any_row or not any(self.numbers[each] for each in results):
                raise UsageError(f"{self.file}:{line}: {header}: {error}")
            self.remarks.append(f"line {line}: {header}: {error}")


def _size(cell: str, meaning: str) -> Size:
    found = size_of(cell, {"gpus_per_node": "per_node"}.get(meaning, meaning))
    if found is None or 0 in (found.nodes, found.per_node, found.gpus):
        digits = re.fullmatch(r"[\d.]+", cell)
        raise ValueError(f"`{cell}` is not a whole number from 1 on" if digits else f"`{cell}` is not a number of GPUs or nodes")
    if meaning == "gpus_per_node" and found.gpus and not found.nodes:
        return Size(per_node=found.gpus, gpu_type=found.gpu_type, rest=found.rest)
    return found


def _complete(size: Size) -> tuple[int | None, int | None, int | None]:
    """(nodes, GPUs per node, GPUs), each from both others where it is not told."""
    nodes, per_node, gpus = size.nodes, size.per_node, size.gpus
    if nodes and gpus and not per_node and gpus % nodes == 0:
        per_node = gpus // nodes
    if per_node and gpus and not nodes and gpus % per_node == 0:
        nodes = gpus // per_node
    return nodes, per_node, nodes * per_node if nodes and per_node else gpus


def _size_of_cells(sizes: Sequence[Size]) -> Size:
    """What several cells tell of one size."""
    first = {
        name: next((found for each in sizes if (found := getattr(each, name))), None) for name in ("nodes", "per_node", "gpus")
    }
    kind, rest = ("".join(dict.fromkeys(getattr(each, name) for each in sizes)) for name in ("gpu_type", "rest"))
    return Size(**first, gpu_type=kind, rest=rest)


def _value(cell: str, each: Column, columns: Sequence[Column]) -> Number:
    """What was measured, by the unit in the cell, else by the header."""
    own = (
        column(f"({match.group(1)})")
        if (match := re.search(r"\d[\s\d.,]*([a-zA-Z]+\s*(?:/|\bper\b)\s*[a-zA-Z/]+)$", cell))
        else None
    )
    said = own if own and own.meaning in MEASURED else each
    if each.meaning == "utilization":
        share = _positive(number(cell))
        return share if each.unit != "percent" and "%" not in cell and share.value <= 1 else share.times(0.01)
    if (
        said.meaning == "throughput"
        or said.inverse
        or (each.meaning in ("average", "median") and "time" not in {one.meaning for one in columns})
    ):
        printed = _positive(number(cell, said.scale))
        return inverse(printed) if said.inverse else printed
    if each.meaning == "bandwidth":
        return _positive(number(cell))
    return seconds(cell, said.unit)


def _positive(found: Number) -> Number:
    if found.value <= 0:
        raise ValueError(f"`{found.text}` is not above zero; leave the cell empty where there is none")
    return found


def _count(cell: str) -> int:
    value = number(cell).value
    if value != int(value) or value < 1:
        raise ValueError(f"`{cell}` is not a whole number from 1 on")
    return int(value)


def _in_percent(claims: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """Efficiencies are in percent where the header or a cell says so, or none could be a share."""
    found = []
    for i, each in enumerate(claims):
        cells = [row.claims[i] for row in rows if i in row.claims]
        percent = each.unit == "percent" or any("%" in cell.text for cell in cells) or any(cell.value > 4 for cell in cells)
        found.append(replace(each, unit="percent" if percent and each.meaning == "efficiency" else None))
    return found


def _separates(each: Column, i: int, rows: Sequence[Row]) -> bool:
    """Words do, and numbers that recur, or differ at one size (settings); results, notes and names of single sizes do not."""
    cells = [(row.size, row.words[i].lower()) for row in rows if row.summary is None]
    filled = {cell for _, cell in cells if not is_blank(cell)}
    if each.name in NOTES or len({cell for _, cell in cells}) < 2:
        return False
    if each.name in CONFIGURATION or SUBJECT.search(each.name):
        return True
    if any(re.match(r"[~\u2248<>+-]?\s*[$€]?\s*\d", cell) for cell in filled):
        settings = all(re.fullmatch(r"[\d.]{1,7}[bkm]?", cell) for cell in filled) and not OF_RESULTS.search(each.name)
        recurs = len(filled) < len(cells) or len(set(cells)) > len({size for size, _ in cells})
        if not settings or not recurs:
            return False
    return not (len(set(cells)) == len({size for size, _ in cells}) == len({cell for _, cell in cells}))


def _batches_named(rows: Sequence[Row]) -> list[Row]:
    """A bare `batch` that grows with the GPUs is that of all, as is one by which the steps follow; else that of one GPU."""
    known = [row for row in rows if "batch" in row.counts]
    if not known or any({"batch_per_gpu", "global_batch"} & set(row.counts) for row in known):
        return list(rows)
    grows = len({row.size for row in known}) > 1 and len({row.counts["batch"] / row.size for row in known}) == 1
    stepped = [row for row in known if {"steps", "samples"} <= set(row.counts)]
    exact = sum(abs(row.counts["samples"] / row.counts["batch"] - row.counts["steps"]) <= 1 for row in stepped)
    name = "global_batch" if grows or (stepped and exact * 2 > len(stepped)) else "batch_per_gpu"
    return [replace(row, counts={**row.counts, name: row.counts["batch"]}) if "batch" in row.counts else row for row in rows]


def _to_their_digits(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """Rates such as 12,300 and 172,000, of which none has more than three digits that count, were rounded to as many."""
    found = list(rows)
    for key in (each.key for each in columns if each.meaning == "throughput"):
        shown = [row.values[key] for row in rows if key in row.values]
        counting = max((len(each.digits.rstrip("0")) for each in shown), default=0)
        if len(shown) < FEW or counting > FEW or any(each.decimals or len(each.digits) <= FEW for each in shown):
            continue
        found = [
            replace(row, values={**row.values, key: _rounded(row.values[key])}) if key in row.values else row for row in found
        ]
    return found


def _rounded(shown: Number) -> Number:
    step = shown.scale * 10.0 ** (len(shown.digits) - FEW)
    return replace(shown, interval=Interval(shown.value - step / 2, shown.value + step, shown.value))
