"""How a speedup may have been computed: against which baseline, from which statistic of its runs, from times or throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hpcddp.analysis.audit.cells import Interval
from hpcddp.analysis.audit.groups import Average, Groups, Series, statistic, value, values
from hpcddp.analysis.audit.row import Row
from hpcddp.core.text import count

BASELINES = ("1 GPU", "1 node", "the smallest size")


@dataclass(frozen=True)
class Basis:
    """One way to compute it; the statistic `average` is the printed average where there is one, else the mean."""

    baseline: str
    metric: str
    weak: bool
    """Times are of work that grows with the GPUs."""
    baseline_statistic: str
    """Of the baseline's runs: average, mean, median, min, max."""
    row_statistic: str
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
    _averages: dict[int, list[Average]] = field(default_factory=dict)
    """Line -> averages that are of it, in the table's order."""

    def __post_init__(self) -> None:
        self._series = self.groups.by_series()
        for average in self.groups.averages:
            for row in average.rows:
                self._averages.setdefault(row.line, []).append(average)

    def baseline(self, row: Row, name: str) -> list[Row]:
        """The measured rows of that baseline in the row's series."""
        key = (self.groups.series(row), name)
        if key not in self._baselines:
            rows = [other for other in self._series[key[0]] if other.summary is None]
            self._baselines[key] = self._of_name(rows, name)
        return self._baselines[key]

    @staticmethod
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

    def ratio(self, row: Row, name: str) -> float | None:
        """How many times the baseline's GPUs the row has; of one GPU or node it needs no row to tell."""
        if rows := self.baseline(row, name):
            return row.size / rows[0].size
        return {BASELINES[0]: row.gpus, BASELINES[1]: row.nodes}.get(name)

    def speedup(self, row: Row, basis: Basis) -> Interval | None:
        """The row's speedup on that basis; None where a number for it is missing."""
        base, mine = self._base(row, basis), self.row_value(row, basis)
        ratio = self.ratio(row, basis.baseline)
        if base is None or mine is None or ratio is None:
            return None
        if basis.metric == "throughput":
            return mine.over(base)
        return base.over(mine).scaled(ratio if basis.weak else 1.0)

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
            return value(row, basis.metric) or value(row, "average") or value(row, "median")
        if basis.row_statistic == "own":
            return value(row, basis.metric)
        printed = row.line if basis.row_statistic == "average" and row.line in self._averages else ""
        key = (row.config, printed, basis.metric, basis.row_statistic)
        if key not in self._known:
            self._known[key] = self.of_rows(self.groups.runs[row.config], basis.metric, basis.row_statistic, row)
        return self._known[key]

    def of_rows(self, rows: Sequence[Row], metric: str, name: str, of: Row | None = None) -> Interval | None:
        """A statistic of rows; `average`: the one printed for them (for `of`, where it is given), else their mean."""
        if name == "average" and metric == self.groups.table.metric:
            lines = {of.line} if of else {row.line for row in rows}
            for average in self._averages.get(min(lines), ()) if lines else ():
                if len(lines) == 1 or lines <= {row.line for row in average.rows}:
                    return average.claim.interval
        found = values(rows, metric)
        return statistic("mean" if name == "average" else name, found) if found else None


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
    pairs += [("min", "min"), ("max", "max")]
    scopes = ["all", *(name for name in ("gpu_type", "node_list", "run") if len(_words(groups, name)) > 1)]
    metrics = [name for name in ("time", "throughput") if any(name in row.values for row in table.rows)]
    metrics = metrics or [table.metric]
    bases = [
        Basis(name, metrics[0], weak=False, baseline_statistic="average", row_statistic="average")
        for name in (*BASELINES, *marked)
    ]
    bases = [replace(way, scope=scope) for scope in (scopes if repeated else ["all"]) for way in bases]
    bases = [
        replace(way, baseline_statistic=base, row_statistic=own)
        for base, own in (pairs if repeated else [("mean", "own")])
        for way in bases
    ]
    forms = [(metric, weak) for metric in metrics for weak in ((False, True) if metric == "time" else (False,))]
    forms.sort(key=lambda form: form[1])
    return [replace(way, metric=metric, weak=weak) for metric, weak in forms for way in bases]


def _words(groups: Groups, name: str) -> set[str]:
    return {word for row in groups.table.measured if (word := getattr(row, name)) is not None}
