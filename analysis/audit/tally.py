"""Counts the numbers of a table that were checked, that add up, and that nothing in the table can check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.analysis.audit.claims import Claims
from hpcddp.analysis.audit.columns import CLAIMS
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups
from hpcddp.analysis.audit.spread import comparable
from hpcddp.analysis.audit.totals import mfu_checked, totals_checked
from hpcddp.analysis.audit.work import steps_checked

OF_AVERAGES = ("average_wrong", "average_outside_rows", "average_is_median")
OF_NODE_LISTS = ("node_count_wrong", "node_list_malformed", "node_repeated", "node_unknown")
"""Classes that say that such a number is wrong."""


@dataclass(frozen=True)
class Tally:
    """Of the numbers of one kind."""

    printed: int
    checked: int
    failed: int

    @property
    def holds(self) -> int:
        return self.checked - self.failed

    @property
    def unchecked(self) -> int:
        return self.printed - self.checked


def tally(groups: Groups, claims: Sequence[Claims], findings: Sequence[Finding]) -> dict[str, Tally]:
    """Kind of number (`averages`, `speedup values` and so on) -> its tally."""
    rows = groups.table.rows
    listed = sum(bool(row.node_list) for row in groups.table.measured)
    wrong_lists = {each.lines for each in findings if each.kind in OF_NODE_LISTS}
    sets = [known for runs in groups.runs.values() for known in comparable(runs, groups)]
    repeated = sum(len(runs) > 1 for runs in groups.runs.values())
    return {
        "averages": _averages(groups, findings),
        **{f"{word} values": _claims([each for each in claims if each.word == word]) for word in CLAIMS},
        "node lists": Tally(listed, listed, len(wrong_lists)),
        "repeated configurations": Tally(max(repeated, len(sets)), len(sets), _of(findings, "runs_disagree")),
        "totals": Tally(totals := totals_checked(groups), totals, _of(findings, "total_wrong")),
        "MFU values": Tally(sum("mfu" in row.values for row in rows), len(mfu_checked(groups)), _of(findings, "mfu_wrong")),
        "step counts": Tally(sum("steps" in row.counts for row in rows), steps_checked(groups), _of(findings, "steps_wrong")),
    }


def _averages(groups: Groups, findings: Sequence[Finding]) -> Tally:
    """Averages whose rows are not in the table are not checked."""
    taken = {line for each in groups.averages for line in each.lines}
    printed = {row.line for row in groups.table.rows if row.summary or {"average", "median"} & set(row.values)}
    return Tally(len(groups.averages) + len(printed - taken), len(groups.averages), _of(findings, *OF_AVERAGES))


def _claims(columns: Sequence[Claims]) -> Tally:
    printed, checked = sum(len(each.claims) for each in columns), sum(len(each.checked) for each in columns)
    return Tally(printed, checked, sum(len(each.missed) + len(each.other_kinds) for each in columns))


def _of(findings: Sequence[Finding], *kinds: str) -> int:
    return sum(each.kind in kinds for each in findings)
