"""Someone else's table of results: what in it does not add up, what was checked and holds, what could not be checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.analysis.audit.checks import above_linear, check_rows, check_superlinear
from hpcddp.analysis.audit.claims import Claims, check_claims
from hpcddp.analysis.audit.findings import Finding, by_weight, to_text
from hpcddp.analysis.audit.groups import Groups
from hpcddp.analysis.audit.table import AuditTable, read_tables

SCHEMA = 1
"""Of `hpcddp audit --format json`."""


@dataclass(frozen=True)
class Audit:
    """What an audit says."""

    table: AuditTable
    findings: tuple[Finding, ...]
    holds: Mapping[str, int]
    """Kind of number -> how many were checked and add up."""
    unchecked: Mapping[str, int]
    """Kind of number -> how many nothing in the table can check."""
    remarks: tuple[str, ...]

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
            "remarks": list(self.remarks),
        }


def audits(file: Path) -> list[Audit]:
    """Checks each table in `file`; UsageError where none can be read."""
    return [_audit(table) for table in read_tables(file)]


def _audit(table: AuditTable) -> Audit:
    groups = Groups(table)
    claims = [found for each in table.columns.values() if each.kind == "claim" and (found := Claims(groups, each)).rows]
    rate_known = any(len(each.fitting) > 1 and each.basis.metric.startswith("throughput") for each in claims)
    fast = list(check_superlinear(groups))
    reported = {line for each in fast for line in each.lines}
    above = [said for each in claims for said in above_linear(each, reported)]
    findings = [*check_rows(groups, rate_known), *fast, *(said for said in above if isinstance(said, Finding))]
    findings += [finding for each in claims for finding in check_claims(each)]
    remarks = [*table.remarks, *(said for said in above if isinstance(said, str))]
    wrong = sum(each.kind in ("average_wrong", "average_outside_rows") for each in findings)
    tallies = [("averages", sum(row.summary for row in table.rows), len(groups.averages), wrong)]
    tallies += [(f"{each.column.meaning} values", len(each.rows), len(each.checked), len(each.missed)) for each in claims]
    holds, unchecked = Counter[str](), Counter[str]()
    for name, printed, checked, missed in tallies:
        holds[name] += checked - missed
        unchecked[name] += printed - checked
    return Audit(table, tuple(by_weight(findings)), +holds, +unchecked, tuple(remarks))
