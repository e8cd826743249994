"""Someone else's table of results: what in it does not add up, what was checked and holds, what could not be checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.analysis.audit.averages import check_averages
from hpcddp.analysis.audit.claim_checks import check_claims
from hpcddp.analysis.audit.claims import claims_of
from hpcddp.analysis.audit.findings import Finding, by_weight
from hpcddp.analysis.audit.groups import group
from hpcddp.analysis.audit.kinds import across_kinds, check_kinds
from hpcddp.analysis.audit.layout import check_layout
from hpcddp.analysis.audit.nodes import KnownNodes
from hpcddp.analysis.audit.parts import check_parts
from hpcddp.analysis.audit.scaling import check_scaling
from hpcddp.analysis.audit.spread import check_effects, check_runs
from hpcddp.analysis.audit.table import AuditTable, read_table
from hpcddp.analysis.audit.tally import tally
from hpcddp.analysis.audit.text import to_text
from hpcddp.analysis.audit.totals import check_totals
from hpcddp.analysis.audit.work import check_work

SCHEMA = 1
"""Of `hpcddp audit --format json`."""


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
        return to_text(self.table.file.name, self.findings, self.holds, self.unchecked, len(self.table.rows))

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


def audit(file: Path, known: KnownNodes | None = None) -> Audit:
    """Checks the table in `file`; `known` are the nodes of its cluster, by name. UsageError where it cannot be read."""
    return audit_of(read_table(file), known)


def audit_of(table: AuditTable, known: KnownNodes | None = None) -> Audit:
    """Checks a table that was read."""
    groups = group(table, known or {})
    claims = across_kinds(groups, claims_of(groups))
    findings = [
        *check_layout(groups, known or {}),
        *check_averages(groups),
        *check_work(groups),
        *check_parts(groups),
        *check_totals(groups),
        *check_runs(groups),
        *check_scaling(groups, claims),
        *(finding for each in claims for finding in (*check_claims(each), *check_kinds(each), *check_effects(each))),
    ]
    tallies = tally(groups, claims, findings)
    holds = {name: each.holds for name, each in tallies.items() if each.checked}
    unchecked = {name: each.unchecked for name, each in tallies.items() if each.unchecked}
    return Audit(table, tuple(by_weight(findings)), holds, unchecked)
