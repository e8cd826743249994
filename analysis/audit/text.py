"""An audit as a reader sees it: a sentence, each class of findings once with its advice, what holds and what was not checked."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.util.wording import WIDE
from hpcddp.core.text import count

WEIGHTS = {3: "a conclusion is in doubt", 2: "a number is wrong", 1: "cannot be told"}
MANY = 8
"""Findings of one class shown in full; JSON has them all."""


def to_text(name: str, findings: Sequence[Finding], holds: Mapping[str, int], unchecked: Mapping[str, int], rows: int) -> str:
    """What was found, what was checked and holds, and what could not be checked, as the terminal shows it."""
    blocks = [[_first(name, findings, rows)]]
    for kind in dict.fromkeys(finding.kind for finding in findings):
        blocks.append(_class([finding for finding in findings if finding.kind == kind]))
    said = {"checked and holds": holds, "not checked, as nothing in the table gives them": unchecked}
    last = [f"{what}: {numbers}" for what, of in said.items() if (numbers := _numbers(of))]
    if not last and not findings:
        last = ["nothing in it claims more than it shows: no average, speedup, efficiency, node list or repeated run"]
    blocks += [last] if last else []
    return "\n\n".join("\n".join(block) for block in blocks)


def _numbers(of: Mapping[str, int]) -> str:
    """`2 averages, 1 speedup value`"""
    return ", ".join(count(number, what.removesuffix("s")) for what, number in of.items() if number)


def _first(name: str, findings: Sequence[Finding], rows: int) -> str:
    if not findings:
        return f"{name}: nothing wrong found in {count(rows, 'row')}."
    does = "does" if len(findings) == 1 else "do"
    first = textwrap.wrap(
        f"{name}: {count(len(findings), 'thing')} in {count(rows, 'row')} {does} not add up. First: {findings[0].sentence}.",
        WIDE,
    )
    return "\n".join(first)


def _class(findings: Sequence[Finding]) -> list[str]:
    first = findings[0]
    lines = [f"{first.kind.replace('_', ' ')}  ({WEIGHTS[first.weight]})"]
    for each in findings[:MANY]:
        where = f"{'line' if len(each.lines) == 1 else 'lines'} {_spans(each.lines)}"
        lines += textwrap.wrap(f"{where}: {each.sentence}.", WIDE, initial_indent="  ", subsequent_indent="    ")
    if len(findings) > MANY:
        lines.append(f"  and {len(findings) - MANY} more (--format json has them all)")
    lines += textwrap.wrap(f"-> {first.advice}", WIDE, initial_indent="  ", subsequent_indent="     ")
    return lines


def _spans(lines: Sequence[int]) -> str:
    """`2-5, 9`"""
    spans: list[list[int]] = []
    for line in sorted(lines):
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
