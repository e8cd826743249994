"""Groups the rows of a table: runs of one configuration, sizes of one series, and the rows of each average."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddp.analysis.audit.cells import Interval, Number
from hpcddp.analysis.audit.nodes import KnownNodes, expand
from hpcddp.analysis.audit.table import AuditTable, Config, Row
from hpcddp.core.errors import UsageError

Series = tuple[int | None, tuple[str, ...]]

ROUNDED_BATCH = 1.05
"""A global batch of 256 is 3 times 85 on three GPUs."""

MOST_AVERAGED = 1_000_000
"""Of the rows of all averages of a table: each average is compared with all of its own."""


@dataclass(frozen=True)
class Average:
    """A printed average and its rows."""

    claim: Number
    statistic: str
    """`mean` or `median`."""
    lines: tuple[int, ...]
    """Where it is printed."""
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Groups:
    """A table and its rows in groups."""

    table: AuditTable
    runs: Mapping[Config, list[Row]]
    averages: tuple[Average, ...]
    hardware: Mapping[int, frozenset[str]]
    """Line -> GPU types of its nodes, as far as the row or its nodes tell."""
    batch_apart: bool
    """Whether rows with different batches are different series."""

    def series(self, row: Row) -> Series:
        return (row.batch if self.batch_apart else None, row.words)

    def by_series(self) -> dict[Series, list[Row]]:
        """Measured rows and summaries, series by series."""
        found: dict[Series, list[Row]] = {}
        for row in self.table.rows:
            found.setdefault(self.series(row), []).append(row)
        return found


def group(table: AuditTable, known: KnownNodes) -> Groups:
    """The table's rows by configuration, with their averages and hardware."""
    runs: dict[Config, list[Row]] = {}
    sizes: dict[tuple[object, ...], set[int | None]] = {}
    for row in table.measured:
        runs.setdefault(row.config, []).append(row)
        sizes.setdefault((row.words, row.nodes, row.size), set()).add(row.batch)
    apart = any(len(batches) > 1 for batches in sizes.values())
    return Groups(table, runs, tuple(_averages(table, runs)), _hardware(table, known), apart)


def values(rows: Iterable[Row], key: str) -> list[Interval]:
    """What the rows measured, of those that give it."""
    return [found for row in rows if (found := row.value(key)) is not None]


def batches(row: Row) -> tuple[float, int] | None:
    """(per GPU, of all), of which the table gives either."""
    per_gpu, total = row.batch, row.counts.get("global_batch")
    if not row.gpus:
        return None
    if per_gpu:
        per_gpu *= row.counts.get("accumulation", 1)
        return per_gpu, per_gpu * row.gpus
    return (total / row.gpus, total) if total else None


def same_batch(row: Row, other: Row) -> bool:
    """Per GPU or in all, as far as the table tells."""
    here, there = batches(row), batches(other)
    if here is None or there is None:
        return True
    return any(max(mine, theirs) <= ROUNDED_BATCH * min(mine, theirs) for mine, theirs in zip(here, there, strict=True))


def statistic(name: str, of: Sequence[Interval]) -> Interval:
    """`mean`, `median`, `min` or `max` of numbers each known to an interval: exact, as all four grow with each of them."""
    functions = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    take = functions[name]
    low, high, best = ([getattr(each, end) for each in of] for end in ("low", "high", "best"))
    return Interval(float(take(low)), float(take(high)), float(take(best)))  # type: ignore[operator]


def _averages(table: AuditTable, runs: Mapping[Config, list[Row]]) -> list[Average]:
    by_words: dict[tuple[str, ...], list[Row]] = {}
    for row in table.measured:
        by_words.setdefault(row.words, []).append(row)
    found: list[Average] = []
    averaged = 0
    for row in (row for row in table.rows if row.summary):
        found += _of_summary(row, table, by_words.get(row.words, []))
        averaged += len(found[-1].rows) if found else 0
        if averaged > MOST_AVERAGED:
            raise UsageError(
                f"{table.file}: its averages are of more than {MOST_AVERAGED:,} rows together; leave out those printed twice"
            )
    found += [average for row in table.rows if (average := _of_cells(row, table))]
    in_columns = [each for name in ("average", "median") for rows in runs.values() for each in _of_column(rows, name)]
    if any(len(each.rows) > 1 for each in in_columns):  # else `average` is another quantity, such as the mean epoch of one run
        found += in_columns
    return [each for each in found if values(each.rows, table.metric)]


def _of_summary(row: Row, table: AuditTable, measured: Sequence[Row]) -> list[Average]:
    """A row `Avg`: of the measured rows that agree with it in all it says."""
    claim = next((row.values[key] for key in (table.metric, "average", "median") if key in row.values), None)
    names = ("nodes", "gpus_per_node", "gpus", "batch", "gpu_type", "node_list")
    said = [(name, found) for name in names if (found := getattr(row, name)) is not None]
    members = tuple(other for other in measured if all(getattr(other, name) == found for name, found in said))
    return [Average(claim, row.summary or "mean", (row.line,), members)] if claim and members else []


def _of_cells(row: Row, table: AuditTable) -> Average | None:
    """An average beside columns `run 1`, `run 2`."""
    claim = row.values.get("average") or row.values.get(table.metric)
    runs = tuple(replace(row, values={table.metric: each}) for key, each in row.values.items() if key.startswith("run_value"))
    return Average(claim, "mean", (row.line,), runs) if claim and len(runs) > 1 else None


def _of_column(rows: Sequence[Row], name: str) -> list[Average]:
    """A column `average`, filled in on every row of its runs, or on the first or last of them only."""
    printed = [row for row in rows if name in row.values]
    if not printed:
        return []
    blocks: dict[str, list[Row]] = {row.values[name].text: [] for row in printed}
    text = next(iter(blocks))
    for row in rows:
        text = row.values[name].text if name in row.values else text
        blocks[text].append(row)
    found = []
    for members in blocks.values():
        shown = [row for row in members if name in row.values]
        kind_ = "median" if name == "median" else "mean"
        found.append(Average(shown[0].values[name], kind_, tuple(row.line for row in shown), tuple(members)))
    return found


def _hardware(table: AuditTable, known: KnownNodes) -> dict[int, frozenset[str]]:
    """What the row says; else what its nodes are in the profile, or in the table's own rows of one node."""
    of_node = {name: kind(node.gpu or node.node_type) for name, node in known.items()}
    for row in table.measured:
        names = node_names(row)
        if row.gpu_type and len(names) == 1 and len(kinds(row.gpu_type)) == 1:
            of_node[names[0]] = kind(row.gpu_type)
    found = {}
    for row in table.rows:
        named = frozenset(kinds(row.gpu_type)) if row.gpu_type else frozenset()
        of_nodes = distinct(frozenset(of_node[name] for name in node_names(row) if name in of_node) | named)
        found[row.line] = of_nodes if len(of_nodes) > 1 or not named else named
    return found


def distinct(found: Iterable[str]) -> frozenset[str]:
    """The GPU types without those that name another of them in less detail: of V100 and V100-32 the latter."""
    types = set(found)
    return frozenset(each for each in types if not any(other.startswith(f"{each}-") for other in types))


def node_names(row: Row) -> list[str]:
    """The row's nodes; none where the list is malformed."""
    try:
        return expand(row.node_list) if row.node_list else []
    except ValueError:
        return []


def kinds(gpu_type: str) -> list[str]:
    """`V100 + A40` -> V100, A40"""
    return [kind(part) for part in re.split(r"\s*(?:\+|/|,|&|;|\band\b)\s*", gpu_type) if part.strip()]


def kind(gpu_type: str) -> str:
    """`NVIDIA Tesla V100 32GB` -> `V100-32`, so that ways to write one type are one."""
    text = re.sub(r"\b(nvidia|tesla|gpu|card)\b", " ", gpu_type.lower())
    text = re.sub(r"(?<=\d)\s*g(i?b)?\b", "", text)
    return "-".join(re.findall(r"[a-z0-9.]+", text)).upper()


def model(gpu_type: str) -> str:
    """`V100-SXM2-32` -> `V100`"""
    found = re.search(r"[A-Z]+\d+[A-Z]*", gpu_type)
    return found.group() if found else gpu_type
