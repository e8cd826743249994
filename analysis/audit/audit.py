"""Someone else's table of results: what in it does not add up, what was checked and holds, what could not be checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddp.analysis.audit.averages import check_averages
from hpcddp.analysis.audit.claims import Claims, check_claims, claims_of
from hpcddp.analysis.audit.columns import CLAIMS
from hpcddp.analysis.audit.findings import Finding, by_weight
from hpcddp.analysis.audit.groups import Groups, group
from hpcddp.analysis.audit.layout import check_layout
from hpcddp.analysis.audit.nodes import KnownNodes
from hpcddp.analysis.audit.scaling import above_linear, check_scaling
from hpcddp.analysis.audit.spread import check_effects, check_runs, comparable
from hpcddp.analysis.audit.table import AuditTable, Row, read_tables
from hpcddp.analysis.audit.text import to_text
from hpcddp.analysis.audit.work import check_work, steps_checked

SCHEMA = 1
"""Of `hpcddp audit --format json`."""

OF_AVERAGES = ("average_wrong", "average_outside_rows", "average_is_median")
OF_NODE_LISTS = ("node_count_wrong", "node_list_malformed", "node_repeated", "node_unknown")


@dataclass(frozen=True)
class Audit:
    """What an audit says."""

    table: AuditTable
    findings: tuple[Finding, ...]
    """Heaviest first."""
    holds: Mapping[str, int]
    """Kind of number -> how many were checked and add up."""
    unchecked: Mapping[str, int]
    """Kind of number -> how many nothing in the table can check."""

    @property
    def text(self) -> str:
        return to_text(self.table.name, self.findings, self.holds, self.unchecked, len(self.table.rows))

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "file": str(self.table.file),
            "rows": len(self.table.rows),
            "findings": [each.plain for each in self.findings],
            "holds": dict(self.holds),
            "unchecked": dict(self.unchecked),
            "remarks": list(self.table.remarks),
        }


def audits(file: Path, known: KnownNodes | None = None) -> list[Audit]:
    """Checks each table in `file`; `known` are the nodes of its cluster, by name. UsageError where none can be read."""
    return [_audit(table, known or {}) for table in read_tables(file)]


def _audit(table: AuditTable, known: KnownNodes) -> Audit:
    groups = group(table, known)
    claims = claims_of(groups)
    if of_one := {each.basis.metric for each in claims if each.basis.grows and not each.ratios.of_time(each.basis.metric)}:
        groups = group(replace(table, rows=tuple(_of_all(row, of_one) for row in table.rows)), known)
        claims = claims_of(groups)
    known_rate = any(len(each.fitting) > 1 and not each.ratios.of_time(each.basis.metric) for each in claims)
    findings = [
        *check_layout(groups, known),
        *check_averages(groups),
        *check_work(groups, known_rate),
        *check_runs(groups),
        *check_scaling(groups, claims),
        *(finding for each in claims for finding in (*check_claims(each), *check_effects(each))),
    ]
    reported = {line for each in findings if each.kind == "superlinear" for line in each.lines}
    table = replace(table, remarks=(*table.remarks, *(text for each in claims for text in above_linear(each, reported))))
    tallies = {name: each for name, each in _tally(groups, claims, findings).items() if each[0]}
    holds = {name: checked - failed for name, (_, checked, failed) in tallies.items() if checked}
    unchecked = {name: printed - checked for name, (printed, checked, _) in tallies.items() if printed > checked}
    return Audit(table, tuple(by_weight(findings)), holds, unchecked)


def _of_all(row: Row, metrics: set[str]) -> Row:
    """Rates that the claims beside them show to be of one GPU, as those of all."""
    return replace(row, values={key: each.times(row.size) if key in metrics else each for key, each in row.values.items()})


def _tally(groups: Groups, claims: Sequence[Claims], findings: Sequence[Finding]) -> dict[str, tuple[int, int, int]]:
    """Kind of number -> (printed, checked, found wrong)"""

    def wrong(*kinds: str) -> int:
        return sum(each.kind in kinds for each in findings)

    rows = groups.table.rows
    taken = {line for each in groups.averages for line in each.lines}
    printed = {row.line for row in rows if row.summary or {"average", "median"} & set(row.values)} - taken
    listed = sum(bool(row.node_list) for row in groups.table.measured)
    sets = sum(1 for runs in groups.runs.values() for _ in comparable(runs, groups))
    repeated = max(sets, sum(len(runs) > 1 for runs in groups.runs.values()))
    of_claims = {}
    for word in CLAIMS:
        of = [each for each in claims if each.word == word]
        counted = (
            sum(len(each.claims) for each in of),
            sum(len(each.checked) for each in of),
            sum(len(each.missed) for each in of),
        )
        of_claims[f"{word} values"] = counted
    return {
        "averages": (len(groups.averages) + len(printed), len(groups.averages), wrong(*OF_AVERAGES)),
        **of_claims,
        "node lists": (listed, listed, len({each.lines for each in findings if each.kind in OF_NODE_LISTS})),
        "repeated configurations": (repeated, sets, wrong("runs_disagree")),
        "step counts": (sum("steps" in row.counts for row in rows), steps_checked(groups), wrong("steps_wrong")),
    }
