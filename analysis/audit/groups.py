"""Groups the rows of a table: runs of one configuration, sizes of one series, baselines, averages, GPU types."""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hpcddp.analysis.audit.cells import Interval, Number
from hpcddp.analysis.audit.table import AuditTable, Config, Row
from hpcddp.core.text import count
from hpcddp.core.written_lists import expand_node_list

Series = tuple[int | None, tuple[str, ...]]

BASELINES = ("1 GPU", "1 node", "the smallest size")

COMPARED = ("words", "nodes", "gpus_per_node", "gpus", "batch", "gpu_type", "node_list")
"""In which a row agrees with the average that it is part of."""

ROUNDED_BATCH = 1.05
"""A global batch of 256 is 3 times 85 on three GPUs."""


def grouped(each_of: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Key -> those that have it, in their order."""
    found: dict[Any, list[Any]] = {}
    for each in each_of:
        found.setdefault(key(each), []).append(each)
    return found


@dataclass(eq=False)
class Runs:
    """Rows that are taken together: runs of one configuration, a baseline."""

    rows: list[Row]
    own: bool = True
    """Whether a baseline is of the series that it is for."""
    sure: bool = True
    """Whether no other rows may be meant as well."""
    _means: dict[str, Interval | None] = field(default_factory=dict)

    def values(self, metric: str) -> list[Interval]:
        """What the rows measured, of those that give it."""
        return [found for row in self.rows if (found := row.value(metric)) is not None]

    def mean(self, metric: str) -> Interval | None:
        """Exact for numbers each known to an interval, as a mean grows with each of them."""
        if metric not in self._means:
            ends = [(each.low, each.high, each.best) for each in self.values(metric)]
            self._means[metric] = Interval(*map(statistics.fmean, zip(*ends, strict=True))) if ends else None
        return self._means[metric]


@dataclass(frozen=True)
class Average:
    """A printed average and its rows."""

    claim: Number
    line: int
    of: Runs


@dataclass
class Groups:
    """A table and its rows in groups."""

    table: AuditTable
    _baselines: dict[tuple[Series, str], Runs] = field(default_factory=dict)

    @cached_property
    def runs(self) -> dict[Config, Runs]:
        return {config: Runs(rows) for config, rows in grouped(self.table.measured, lambda row: row.config).items()}

    @cached_property
    def series(self) -> dict[Series, list[Row]]:
        """Measured rows of one kind, of all sizes."""
        return grouped(self.table.measured, self.series_of)

    def series_of(self, row: Row) -> Series:
        return (row.batch if self._batch_apart else None, row.words)

    @cached_property
    def _batch_apart(self) -> bool:
        """Whether rows with different batches are different series: some size has several."""
        configs = {(row.words, row.nodes, row.size, row.batch) for row in self.table.measured}
        return len(configs) > len({config[:3] for config in configs})

    def baseline(self, row: Row, name: str) -> Runs:
        """The measured rows of that baseline in the row's series; else those of the table that have most words of it."""
        key = (self.series_of(row), name)
        if key not in self._baselines:
            measured = self.series.get(key[0], [])
            own = _of_name([other for other in measured if other.numbers] or measured, name)
            self._baselines[key] = Runs(own) if own else self._nearest(row, name)
        return self._baselines[key]

    def _nearest(self, row: Row, name: str) -> Runs:
        """One GPU without DDP is the usual baseline of DDP: rows of fewer GPUs that share most words, the first of such."""
        others = [other for other in _of_name(self.table.measured, name) if other.size < row.size]
        shared = grouped(others, lambda other: sum(map(operator.eq, row.words, other.words)))
        best = list(grouped(shared[max(shared)], self.series_of).values()) if shared else []
        return Runs(best[0] if best else [], own=not best, sure=len(best) < 2)

    def ratio(self, row: Row, name: str) -> float | None:
        """How many times the baseline's GPUs the row has; of one GPU or node it needs no row to tell."""
        if base := self.baseline(row, name).rows:
            return row.size / base[0].size
        return {BASELINES[0]: row.gpus, BASELINES[1]: row.nodes}.get(name)

    @cached_property
    def averages(self) -> list[Average]:
        """Rows `Avg`: of the measured rows that agree with them in all they say."""
        found, metric = [], self.table.metrics[0]
        for row in self.table.rows:
            said = [(name, value) for name in COMPARED if (value := getattr(row, name)) is not None]
            if row.summary and metric in row.numbers:
                of = Runs([other for other in self.table.measured if all(getattr(other, name) == value for name, value in said)])
                found += [Average(row.numbers[metric], row.line, of)] if of.mean(metric) else []
        return found

    @cached_property
    def _average_of(self) -> dict[int, Average]:
        """Line -> the first average that is of it."""
        return {row.line: each for each in reversed(self.averages) for row in each.of.rows}

    def before(self, row: Row, name: str, metric: str) -> list[Interval]:
        """What the baseline comes to: the average printed for it, and the mean of its runs."""
        base = self.baseline(row, name)
        printed = self._average_of.get(base.rows[0].line) if base.rows and metric == self.table.metrics[0] else None
        of_all = [printed.claim.interval] if printed and len(base.rows) <= len(printed.of.rows) else []
        return [*of_all, *filter(None, [base.mean(metric)])]

    @cached_property
    def gpu_types(self) -> dict[int, frozenset[str]]:
        """Line -> GPU types: what the row says; else what the table's own rows of one node say of its nodes."""
        of_node = {}
        for row in self.table.measured:
            names, kinds = _node_names(row), _kinds(row.gpu_type or "")
            if len(names) == len(kinds) == 1:
                of_node[names[0]] = kinds[0]
        of_nodes = {row.line: {of_node[name] for name in _node_names(row) if name in of_node} for row in self.table.rows}
        return {row.line: _distinct({*_kinds(row.gpu_type or ""), *of_nodes[row.line]}) for row in self.table.rows}

    def types_of(self, rows: Iterable[Row]) -> list[str]:
        return sorted(_distinct({kind for row in rows for kind in self.gpu_types[row.line]}))


def _of_name(rows: list[Row], name: str) -> list[Row]:
    if name == "1 GPU":
        return [other for other in rows if other.gpus == 1]
    if name == "1 node":
        most = max((other.gpus_per_node or 0 for other in rows), default=0)
        return [other for other in rows if other.nodes == 1 and (other.gpus_per_node or 0) == most and most != 1]
    if name != BASELINES[2]:
        return [other for other in rows if name in (count(other.size, "GPU"), other.nodes and count(other.nodes, "node"))]
    smallest = min((other.size for other in rows), default=0)
    return [other for other in rows if other.size == smallest]


def batches(row: Row) -> tuple[float, int] | None:
    """(per GPU, of all), of which the table gives either."""
    per_gpu, total = row.batch, row.count("global_batch")
    if row.gpus and per_gpu:
        per_gpu *= row.count("accumulation") or 1
        return per_gpu, per_gpu * row.gpus
    return (total / row.gpus, total) if row.gpus and total else None


def same_batch(row: Row, other: Row) -> bool:
    """Per GPU or in all, as far as the table tells."""
    here, there = batches(row), batches(other)
    pairs = list(zip(here, there, strict=True)) if here and there else []
    return not pairs or any(max(pair) <= ROUNDED_BATCH * min(pair) for pair in pairs)


def _distinct(types: set[str]) -> frozenset[str]:
    """Without those that name another of them in less detail: of V100 and V100-32 the latter."""
    return frozenset(each for each in types if not any(other.startswith(f"{each}-") for other in types))


def _node_names(row: Row) -> list[str]:
    """The row's nodes; none where the list is malformed."""
    try:
        return expand_node_list(row.node_list) if row.node_list else []
    except ValueError:
        return []


def _kinds(gpu_type: str) -> list[str]:
    """`NVIDIA Tesla V100 32GB + A40` -> V100-32, A40: ways to write one type are one."""
    text = re.sub(r"\b(nvidia|tesla|gpu|card)\b|(?<=\d)\s*g(i?b)?\b", " ", gpu_type.lower())
    parts = re.split(r"\s*(?:\+|/|,|&|;|\band\b)\s*", text)
    return ["-".join(re.findall(r"[a-z0-9.]+", part)).upper() for part in parts if part.strip()]
