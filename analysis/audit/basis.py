"""How a speedup may have been computed: against which baseline, from which column, and from which statistic of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hpcddp.analysis.audit.cells import Interval
from hpcddp.analysis.audit.groups import Average, Groups, Series, statistic, values
from hpcddp.analysis.audit.table import Row
from hpcddp.core.text import count

BASELINES = ("1 GPU", "1 node", "the smallest size")

MOST_SERIES = 200
"""Of which each looks for a baseline among the others; a table with more is no scaling table."""


@dataclass(frozen=True)
class Basis:
    """One way to compute it; the statistic `average` is the printed average where there is one, else the mean."""

    baseline: str
    metric: str
    """Key of a column of times or rates."""
    grows: bool = False
    """Times are of work that grows with the GPUs; rates are of one GPU."""
    baseline_statistic: str = "average"
    """Of the baseline's runs: average, mean, median, min, max."""
    row_statistic: str = "average"
    """Of the row's runs: the same, or `own`, the row's value itself."""
    scope: str = "all"
    """Runs of the baseline that count: all, or those with the row's gpu_type, node_list or run."""


@dataclass
class Ratios:
    """Speedups computed from a table, on any basis."""

    groups: Groups
    _known: dict[tuple[object, ...], Interval | None] = field(default_factory=dict)
    _series: dict[Series, list[Row]] = field(default_factory=dict)
    _baselines: dict[tuple[Series, str], list[Row]] = field(default_factory=dict)
    _scoped: dict[tuple[object, ...], dict[object, list[Row]]] = field(default_factory=dict)
    _averages: dict[int, Average] = field(default_factory=dict)
    """Line -> the first average that is of it."""
    unsure: set[Series] = field(default_factory=set)
    """Series without a baseline of their own, for which several others may be meant."""

    def __post_init__(self) -> None:
        self._series = self.groups.by_series()
        for average in self.groups.averages:
            for row in average.rows:
                self._averages.setdefault(row.line, average)

    def baseline(self, row: Row, name: str) -> list[Row]:
        """The measured rows of that baseline in the row's series; else those of the table that have most words of it."""
        key = (self.groups.series(row), name)
        if key not in self._baselines:
            measured = [other for other in self._series[key[0]] if other.summary is None]
            own = _of_name([other for other in measured if other.values] or measured, name)
            self._baselines[key] = own or self._nearest(row, name)
        return self._baselines[key]

    def _nearest(self, row: Row, name: str) -> list[Row]:
        """One GPU without DDP is the usual baseline of DDP: rows of fewer GPUs that share most words, the first of such."""
        if len(self._series) > MOST_SERIES:
            return []
        others = [other for other in _of_name(self.groups.table.measured, name) if other.size < row.size]
        shared = [sum(mine == theirs for mine, theirs in zip(row.words, other.words, strict=True)) for other in others]
        best = [other for other, same in zip(others, shared, strict=True) if same == max(shared)]
        if len({self.groups.series(other) for other in best}) > 1:
            self.unsure.add(self.groups.series(row))
        return [other for other in best if self.groups.series(other) == self.groups.series(best[0])]

    def of_own_kind(self, row: Row, name: str) -> bool:
        """Whether the baseline is of the row's own series."""
        return all(self.groups.series(base) == self.groups.series(row) for base in self.baseline(row, name)[:1])

    def ratio(self, row: Row, name: str) -> float | None:
        """How many times the baseline's GPUs the row has; of one GPU or node it needs no row to tell."""
        if rows := self.baseline(row, name):
            return row.size / rows[0].size
        return {BASELINES[0]: row.gpus, BASELINES[1]: row.nodes}.get(name)

    def speedup(self, row: Row, basis: Basis) -> Interval | None:
        """The row's speedup on that basis; None where a number for it is missing."""
        base, mine, ratio = self._base(row, basis), self.row_value(row, basis), self.ratio(row, basis.baseline)
        if base is None or mine is None or ratio is None:
            return None
        return (base.over(mine) if self.of_time(basis.metric) else mine.over(base)).scaled(ratio if basis.grows else 1.0)

    def of_time(self, metric: str) -> bool:
        return metric.startswith("time")

    def _base(self, row: Row, basis: Basis) -> Interval | None:
        scoped = "" if basis.scope == "all" else getattr(row, basis.scope)
        key = (self.groups.series(row), basis.baseline, basis.metric, basis.baseline_statistic, basis.scope, scoped)
        if key not in self._known:
            rows = self.baseline(row, basis.baseline)
            if basis.scope != "all":
                rows = self._in_scope(row, basis).get(scoped, []) if scoped is not None else []
            self._known[key] = self.of_rows(rows, basis.metric, basis.baseline_statistic)
        return self._known[key]

    def _in_scope(self, row: Row, basis: Basis) -> dict[object, list[Row]]:
        """The baseline's rows by their gpu_type, node_list or run."""
        key = (self.groups.series(row), basis.baseline, basis.scope)
        if key not in self._scoped:
            found = self._scoped[key] = {}
            for other in self.baseline(row, basis.baseline):
                found.setdefault(getattr(other, basis.scope), []).append(other)
        return self._scoped[key]

    def row_value(self, row: Row, basis: Basis) -> Interval | None:
        if row.summary is not None:
            return row.value(basis.metric) or row.value("average") or row.value("median")
        if basis.row_statistic == "own":
            return row.value(basis.metric)
        printed = row.line if basis.row_statistic == "average" and row.line in self._averages else ""
        key = (row.config, printed, basis.metric, basis.row_statistic)
        if key not in self._known:
            self._known[key] = self.of_rows(self.groups.runs[row.config], basis.metric, basis.row_statistic, row)
        return self._known[key]

    def of_rows(self, rows: Sequence[Row], metric: str, name: str, of: Row | None = None) -> Interval | None:
        """A statistic of rows; `average`: the one printed for them (for `of`, where it is given), else their mean."""
        if name == "average" and metric == self.groups.table.metric and rows:
            average = self._averages.get(of.line if of else min(row.line for row in rows))
            if average and (of or len(rows) == 1 or {row.line for row in rows} <= {row.line for row in average.rows}):
                return average.claim.interval
        found = values(rows, metric)
        return statistic("mean" if name == "average" else name, found) if found else None


def _of_name(rows: Sequence[Row], name: str) -> list[Row]:
    if name == "1 GPU":
        return [other for other in rows if other.gpus == 1]
    if name == "1 node":
        most = max((other.gpus_per_node or 0 for other in rows), default=0)
        return [other for other in rows if other.nodes == 1 and (other.gpus_per_node or 0) == most and most != 1]
    if name != BASELINES[2]:
        return [other for other in rows if name in (count(other.size, "GPU"), other.nodes and count(other.nodes, "node"))]
    smallest = min((other.size for other in rows), default=0)
    return [other for other in rows if other.size == smallest]


def possible_bases(groups: Groups, marked: Sequence[str] = ()) -> list[Basis]:
    """Every basis that the table allows, the usual ones first, then those sizes that a column marks as its baseline."""
    table = groups.table
    repeated = any(len(rows) > 1 for rows in groups.runs.values())
    pairs = [
        ("average", "average"),
        ("mean", "mean"),
        ("median", "median"),
        ("average", "own"),
        ("mean", "own"),
        ("median", "own"),
    ]
    pairs = [*pairs, ("min", "min"), ("max", "max")] if repeated else [("mean", "own")]
    scopes = ["all", *(name for name in ("gpu_type", "node_list", "run") if len(_words(groups, name)) > 1)]
    forms = [(key, grows) for grows in (False, True) for key in table.metrics if not (grows and table.is_each(key))]
    names = (*BASELINES, *marked)
    ways = [
        Basis(name, "", False, base, own, scope)
        for base, own in pairs
        for scope in (scopes if repeated else [*scopes[:1], *(["gpu_type"] if "gpu_type" in scopes else [])])
        for name in names
    ]
    return [replace(way, metric=metric, grows=grows) for metric, grows in forms for way in ways]


def _words(groups: Groups, name: str) -> set[str]:
    return {word for row in groups.table.measured if (word := getattr(row, name)) is not None}
