"""Reads one line of someone else's table, with each number an interval and its layout complete as far as the table tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcddp.analysis.audit.cells import PLAIN, Number, inverse, is_blank, number, plain_digits, seconds
from hpcddp.analysis.audit.columns import CLAIMS, SETTINGS, TIMES, AuditColumn, name_of
from hpcddp.analysis.audit.configuration import CONFIGURATION, in_short, split_degree
from hpcddp.analysis.audit.rates import Rate, rate
from hpcddp.core.errors import UsageError
from hpcddp.core.text import count

COUNTS = (
    *("nodes", "gpus_per_node", "gpus", "batch_per_gpu", "global_batch", "samples", "samples_per_step", "epochs", "steps", "n"),
    *("data_parallel", "accumulation"),
)
RATES = ("throughput_per_gpu", "tflops", "tflops_per_gpu")
MEASURED = ("time", "throughput", *RATES)
PRINTED_RATE = re.compile(r"(.*?\d)\s*([a-z]+\s*(?:/|\bper\b)\s*[a-z]+)", re.IGNORECASE)
TYPED = re.compile(r"([1-9]\d*)\s*[x\u00d7]\s*([a-z].*)", re.IGNORECASE)
SUMMARIES = {"avg": "mean", "avg.": "mean", "average": "mean", "mean": "mean", "ø": "mean", "median": "median"}

Config = tuple[int | None, int | None, int | None, int | None, tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """One line. Times are seconds; what is not there is None or not in `values`."""

    line: int
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    batch: int | None = None
    subject: tuple[str, ...] = ()
    """Settings that say what was trained."""
    configuration: tuple[str, ...] = ()
    """Settings that say how, in short."""
    node_list: str | None = None
    gpu_type: str | None = None
    run: str | None = None
    baseline: str | None = None
    scaling: str | None = None
    summary: str | None = None
    """`mean` or `median` for a row that summarises others."""
    counts: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Number] = field(default_factory=dict)
    """time, throughput, average, median, compute, comm, bandwidth, data_wait, rates, and as shares mfu and utilization."""
    step_time: bool = False
    """Its time is that of a step."""
    claims: Mapping[int, Number] = field(default_factory=dict)
    """By the number of the column in AuditTable.claims."""

    @property
    def setting(self) -> tuple[str, ...]:
        return (*self.subject, *self.configuration)

    @property
    def replicas(self) -> int | None:
        """Copies of the model that share the data; the GPUs, where each has one."""
        split = split_degree(self.configuration)
        if said := self.counts.get("data_parallel"):
            return said
        return self.gpus // split if self.gpus and self.gpus % split == 0 else self.gpus

    @property
    def size(self) -> int:
        """GPUs; nodes where the table does not tell GPUs."""
        return self.gpus or self.nodes or 1

    @property
    def config(self) -> Config:
        return (self.nodes, self.gpus_per_node, self.gpus, self.batch, self.setting)

    @property
    def layout(self) -> str:
        """`4x1` (nodes x GPUs per node), `4 GPUs`, `2 nodes`."""
        if self.nodes and self.gpus_per_node:
            return f"{self.nodes}x{self.gpus_per_node}"
        if self.gpus:
            return count(self.gpus, "GPU")
        return count(self.size, "node")


def read_row(file: Path, line: int, cells: Sequence[str], columns: Sequence[AuditColumn]) -> Row:
    """The row of a line; UsageError names file, line, column and what to write instead."""
    if len(cells) > len(columns):
        raise UsageError(f"{file}:{line}: {len(cells)} cells under {len(columns)} headers; quote cells that hold a separator")
    words: dict[str, str] = {}
    subject, configuration, counts = list[str](), list[str](), dict[str, int]()
    values, claims = dict[str, Number](), dict[int, Number]()
    claimed = 0
    for each, cell in zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=True):
        try:
            if each.meaning in CLAIMS:
                if not is_blank(cell):
                    claims[claimed] = _positive(number(cell))
                claimed += 1
            elif each.name in SETTINGS and each.meaning is None:
                (configuration if each.name in CONFIGURATION else subject).append(in_short(each.name, cell))
            elif each.meaning is None or is_blank(cell):
                continue
            elif each.meaning in COUNTS:
                counts[each.meaning], kind = _count_of(cell) if each.meaning == "gpus" else (_count(cell), "")
                words |= {"gpu_type": kind} if kind and "gpu_type" not in words else {}
            elif (found := _value(cell, each, columns)) is not None:
                values[each.meaning] = found
            else:
                words[each.meaning] = cell
        except ValueError as error:
            raise UsageError(f"{file}:{line}: {each.header}: {error}") from error
    row = Row(line, subject=tuple(subject), configuration=tuple(configuration), counts=counts, values=values, claims=claims)
    row = replace(row, step_time=any(each.of_step for each in columns))
    return _sized(file, line, row, words)


def _value(cell: str, each: AuditColumn, columns: Sequence[AuditColumn]) -> Number | None:
    """What was measured; None where the column holds words."""
    if each.meaning in ("mfu", "utilization"):
        return _share(cell, each)
    if each.meaning in MEASURED and (printed := _as_rate(cell, each.rate)):
        return printed
    if each.meaning in TIMES and "throughput" not in each.name:
        return _measured(cell, each, columns)
    return _positive(number(cell)) if each.meaning in ("throughput", "bandwidth", *RATES, *TIMES) else None


def _as_rate(cell: str, of_column: Rate | None) -> Number | None:
    """`1,200 tok/s`, `35 s/epoch`, or a bare number under such a header; None for anything else."""
    found = PRINTED_RATE.fullmatch(cell)
    own = rate(name_of(found.group(2))) if found else None
    bare = found.group(1) if found and own else cell
    said = own or of_column
    if said is None or not PLAIN.fullmatch(plain_digits(bare.strip())):
        return None
    printed = replace(_positive(number(bare, said.scale)), text=cell)
    return inverse(printed) if said.inverse else printed


def _measured(cell: str, each: AuditColumn, columns: Sequence[AuditColumn]) -> Number:
    """An average is of throughput where no column holds times."""
    of_throughput = each.meaning in ("average", "median") and "time" not in {other.meaning for other in columns}
    if of_throughput and "time" not in each.name and each.unit is None:
        return _positive(number(cell))
    return seconds(cell, each.unit)


def _positive(found: Number) -> Number:
    if found.value <= 0:
        raise ValueError(f"`{found.text}` is not above zero; leave the cell empty where there is none")
    return found


def _share(cell: str, each: AuditColumn) -> Number:
    """`53.8`, `53.8 %` or `0.538`."""
    found = _positive(number(cell))
    if each.unit != "percent" and "%" not in cell and found.value <= 1:
        return found
    return replace(_positive(number(cell, 0.01)), text=cell)


def _count_of(cell: str) -> tuple[int, str]:
    """`8` and `8x A100` GPUs: how many, and of which type."""
    found = TYPED.fullmatch(cell)
    return (int(found.group(1)), found.group(2)) if found else (_count(cell), "")


def _count(cell: str) -> int:
    value = number(cell).value
    if value != int(value) or value < 1:
        raise ValueError(f"`{cell}` is not a whole number from 1 on")
    return int(value)


def _sized(file: Path, line: int, row: Row, words: Mapping[str, str]) -> Row:
    """The row with its layout complete, as far as the table tells."""
    summary = next((SUMMARIES[word.lower()] for word in words.values() if word.lower() in SUMMARIES), None)
    words = {key: word for key, word in words.items() if word.lower() not in SUMMARIES}
    nodes, per_node, gpus = (row.counts.get(key) for key in ("nodes", "gpus_per_node", "gpus"))
    if nodes and gpus and not per_node and gpus % nodes == 0:
        per_node = gpus // nodes
    if per_node and gpus and not nodes and gpus % per_node == 0:
        nodes = gpus // per_node
    if nodes is None and gpus is None:
        raise UsageError(f"{file}:{line}: neither nodes nor gpus is filled in, so the row's size is not known; fill in one")
    return replace(
        row,
        nodes=nodes,
        gpus_per_node=per_node,
        gpus=nodes * per_node if nodes and per_node else gpus,
        batch=row.counts.get("batch_per_gpu"),
        summary=summary,
        node_list=words.get("node_list"),
        gpu_type=words.get("gpu_type"),
        run=words.get("run"),
        baseline=words.get("baseline"),
        scaling=words.get("scaling"),
    )
