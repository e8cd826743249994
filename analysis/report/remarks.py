"""What a reader must know before quoting a number: verdicts, then what does not count or is missing, then notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hpcddp.analysis.report.html import Html, join, prose, tag
from hpcddp.analysis.runs.run import by_reason
from hpcddp.analysis.verdicts.context import DOUBTFUL, WRONG, Verdict
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import count

SHOWN = 4
"""Of a kind; the others are folded away."""


@dataclass(frozen=True)
class Remark:
    """One of them, with what to do about it and the runs that show it."""

    kind: str
    """A verdict's name, `rejected`, `missing` or `note`."""
    grave: str
    """`wrong`, `doubtful` or ``, as it is coloured."""
    text: str
    advice: str = ""
    runs: Sequence[str] = ()


def remarks(found: Findings) -> list[Remark]:
    """What is wrong first."""
    grave = {"rejected": "wrong", "missing": "doubtful"}
    of_runs = [
        Remark(state, grave[state], reason, runs=tuple(run.name for run in same))
        for state in grave
        for reason, same in by_reason(run for run in found.records.runs if run.state == state).items()
    ]
    return [*map(_of_verdict, found.verdicts), *of_runs, *(Remark("note", "", note) for note in found.notes)]


def remark_list(told: Sequence[Remark]) -> Html:
    """One list per kind of remark; what is much of a kind is folded away."""
    if not told:
        return tag("p", "Every run that was planned is done and passed its checks.")
    kinds = groupby(told, key=lambda remark: remark.kind)
    return join(_of_kind(list(same), kind) for kind, same in kinds)


def _of_verdict(verdict: Verdict) -> Remark:
    grave = "wrong" if verdict.weight >= WRONG else "doubtful" if verdict.weight >= DOUBTFUL else ""
    text = f"{verdict.where}: {verdict.evidence}" if verdict.where else verdict.evidence
    return Remark(verdict.name, grave, text, verdict.advice, verdict.runs)


def _of_kind(told: Sequence[Remark], kind: str) -> Html:
    """The kind stands before the first of them, advice with the first of several in a row that have the same."""
    before = [None, *told[:-1]]
    items = [
        _item(remark, first=not last, advised=not last or last.advice != remark.advice)
        for remark, last in zip(told, before, strict=True)
    ]
    shown, rest = tag("ul", *items[:SHOWN], class_="remarks"), items[SHOWN:]
    more = tag("details", tag("summary", f"{len(rest)} more: {kind}"), tag("ul", *rest, class_="remarks"))
    return join([shown, more if rest else None])


def _item(remark: Remark, first: bool, advised: bool) -> Html:
    kind = tag("span", remark.kind if first else None, class_=f"kind {remark.grave}".strip())
    advice = tag("p", prose(f"Next: {remark.advice}")) if remark.advice and advised else None
    return tag("li", kind, tag("div", tag("p", prose(remark.text)), _runs(remark.runs), advice))


def _runs(names: Sequence[str]) -> Html | None:
    """One by its name, several by their number."""
    if len(names) > 1:
        return tag("details", tag("summary", count(len(names), "run")), tag("p", ", ".join(names)))
    return tag("p", *names, class_="run") if names else None
