"""Do two tables of one study say the same of what both have?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hpcddp.analysis.audit.audit import Audit, audit_of
from hpcddp.analysis.audit.columns import CLAIMS
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import statistic, values
from hpcddp.analysis.audit.rates import work_of
from hpcddp.analysis.audit.row import Row
from hpcddp.analysis.audit.spread import DISAGREE
from hpcddp.analysis.audit.table import AuditTable
from hpcddp.analysis.util.wording import times

MEASURED = ("time", "throughput", "throughput_per_gpu", "tflops_per_gpu", "mfu", "compute", "comm", "data_wait")
COUNTED = ("samples", "steps", "global_batch")

LABELS = {"experiment", "table", "group", "series", "question", "version"}
"""Settings that name a table rather than what was trained."""

Key = tuple[object, ...]


@dataclass(frozen=True)
class Pair:
    """Two tables, and their rows of the same configurations."""

    first: AuditTable
    second: AuditTable
    shared: Sequence[tuple[Sequence[Row], Sequence[Row]]]


def check_between(audits: Sequence[Audit]) -> list[Finding]:
    """What two of the tables say differently, and claims of one that the times of another contradict."""
    found = []
    for one, other in combinations(audits, 2):
        pair = _pair(one.table, other.table)
        found += [finding for rows in pair.shared for finding in _disagree(pair, *rows)]
        found += [*_contradicted(one, other.table), *_contradicted(other, one.table)]
    return found


def _pair(first: AuditTable, second: AuditTable) -> Pair:
    given = [{name for row in table.measured for name, cell in _said(table, row).items() if cell} for table in (first, second)]
    names = sorted(given[0] & given[1])
    rows = [_by_key(table, names) for table in (first, second)]
    keys = [key for key in rows[0] if key in rows[1]] if {"gpus", "nodes"} & set(names) else []
    pairs = [(rows[0][key], rows[1][key]) for key in keys]
    alike = [pair for pair in pairs if all(_is_one(table, of) for table, of in zip((first, second), pair, strict=True))]
    return Pair(first, second, alike)


def _is_one(table: AuditTable, rows: Sequence[Row]) -> bool:
    """Whether the rows are runs of one configuration, also in what only this table tells."""
    return len({tuple(_said(table, row).items()) for row in rows}) == 1


def _by_key(table: AuditTable, names: Sequence[str]) -> Mapping[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for row in table.measured:
        said = _said(table, row)
        found.setdefault(tuple(said.get(name) for name in names), []).append(row)
    return found


def _said(table: AuditTable, row: Row) -> dict[str, object]:
    """What a row is of: its size, batch and settings, but for those that name a table."""
    settings = zip((*table.subject, *table.configuration), row.setting, strict=True)
    said: dict[str, object] = {name: cell.lower() or "-" for name, cell in settings if name not in LABELS}
    return said | {"gpus": row.gpus, "nodes": row.nodes, "batch": row.batch, "gpu_type": row.gpu_type}


def _disagree(pair: Pair, first: Sequence[Row], second: Sequence[Row]) -> Iterator[Finding]:
    """Values of one configuration further apart than its runs may be, and counts that are not equal."""
    layout = first[0].layout + (f" with {first[0].batch} per GPU" if first[0].batch else "")
    there = f"in {pair.second.file.name} line {second[0].line}"
    lines, file = tuple(row.line for row in first), pair.first.file.name
    for name in MEASURED:
        shown = [next((str(row.values[name]) for row in rows if name in row.values), "") for rows in (first, second)]
        if all(shown) and _same_unit(pair, first[0], second[0], name) and (ratio := _apart(first, second, name)):
            far = f"{times(ratio)} times apart"
            sentence = f"{name.replace('_', ' ')} at {layout} is {shown[0]} here and {shown[1]} {there}: {far}"
            yield Finding("tables_disagree", lines, shown[0], far, sentence, file)
    for name in COUNTED:
        mine, theirs = ({row.counts[name] for row in rows if name in row.counts} for rows in (first, second))
        if mine and theirs and not mine & theirs:
            claimed, follows = f"{min(mine):,}", f"{min(theirs):,}"
            sentence = f"{name.replace('_', ' ')} at {layout} is {claimed} here and {follows} {there}"
            yield Finding("tables_disagree", lines, claimed, follows, sentence, file)


def _apart(first: Sequence[Row], second: Sequence[Row], name: str) -> float | None:
    """How far apart their means are; None where runs of one configuration may be as far."""
    low, high = sorted((statistic("mean", values(rows, name)) for rows in (first, second)), key=lambda each: each.best)
    return high.best / low.best if high.low > DISAGREE * low.high else None


def _same_unit(pair: Pair, here: Row, there: Row, name: str) -> bool:
    """Times both of a step or both not; rates of the same work, as far as their headers tell."""
    if name in ("time", "compute", "comm", "data_wait"):
        return here.step_time == there.step_time
    work = [work_of(table.headers.get(name, "")) for table in (pair.first, pair.second)]
    return not name.startswith("throughput") or work[0] == work[1] or "" in work


def _contradicted(claiming: Audit, measuring: AuditTable) -> Iterator[Finding]:
    """What the claims of a table without times come to with those of another."""
    table = claiming.table
    if not table.claims or any({"time", "throughput"} & set(row.values) for row in table.rows):
        return
    lent = {row.line: theirs[0] for mine, theirs in _pair(table, measuring).shared for row in mine if len(theirs) == 1}
    rows = tuple(_with_times(row, lent[row.line]) if row.line in lent else row for row in table.rows)
    known = {(each.kind, each.lines) for each in claiming.findings}
    for found in audit_of(replace(table, rows=rows)).findings:
        if (found.kind, found.lines) not in known and _of_claims(found.kind):
            sentence = f"{found.sentence} (by what {measuring.file.name} measured)"
            yield replace(found, sentence=sentence, file=table.file.name)


def _with_times(row: Row, other: Row) -> Row:
    measured = {name: other.values[name] for name in ("time", "throughput") if name in other.values}
    return replace(row, values={**row.values, **measured}, step_time=other.step_time)


def _of_claims(kind: str) -> bool:
    return kind.startswith(("baseline", "configuration", *CLAIMS))
