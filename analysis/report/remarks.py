"""What a reader must know before quoting a number: verdicts, then what does not count or is missing, then notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hpcddp.analysis.runs.run import by_reason
from hpcddp.analysis.verdicts.context import DOUBTFUL, WRONG, Verdict
from hpcddp.analysis.verdicts.findings import Findings


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


def by_kind(found: Findings) -> list[tuple[str, list[tuple[Remark, str]]]]:
    """(kind, its remarks, each with its advice); what several in a row advise stands with the first of them."""
    groups = [(kind, list(same)) for kind, same in groupby(remarks(found), key=lambda remark: remark.kind)]
    return [(kind, [(one, one.advice if one.advice != before else "") for one, before in _after(same)]) for kind, same in groups]


def _after(same: Sequence[Remark]) -> Iterator[tuple[Remark, str]]:
    """Each with the advice of the one before it."""
    return zip(same, ["", *(remark.advice for remark in same)], strict=False)


def _of_verdict(verdict: Verdict) -> Remark:
    grave = "wrong" if verdict.weight >= WRONG else "doubtful" if verdict.weight >= DOUBTFUL else ""
    text = f"{verdict.where}: {verdict.evidence}" if verdict.where else verdict.evidence
    return Remark(verdict.name, grave, text, verdict.advice, verdict.runs)
