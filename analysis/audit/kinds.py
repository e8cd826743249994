"""Finds speedups and efficiencies against a baseline of another kind: without tensor parallelism, in another precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpcddp.analysis.audit.basis import BASELINES
from hpcddp.analysis.audit.cells import print_like
from hpcddp.analysis.audit.claims import Claim, Claims, claims_of
from hpcddp.analysis.audit.configuration import DEGREES
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, batches, group, value
from hpcddp.analysis.audit.row import Row


def across_kinds(groups: Groups, columns: Sequence[Claims]) -> list[Claims]:
    """The columns, with the claims that only a baseline of another configuration gives."""
    if len({row.configuration for row in groups.table.rows}) < 2:
        return list(columns)
    pooled = {each.index: each for each in claims_of(_of_one_kind(groups))}
    lines = {row.line: row for row in groups.table.rows}
    return [_with_kinds(each, dict(_against_others(each, pooled[each.index], lines))) for each in columns]


def _of_one_kind(groups: Groups) -> Groups:
    """The same table as if all its rows were of one configuration."""
    rows = tuple(replace(row, configuration=()) for row in groups.table.rows)
    return replace(group(replace(groups.table, rows=rows), {}), hardware=groups.hardware)


def _with_kinds(claims: Claims, bases: Mapping[int, Row]) -> Claims:
    """The column with those of its claims that compare sizes, and those that compare configurations."""
    rows = {claim.row.line: claim.row for claim in claims.claims}
    sizes = {line: base for line, base in bases.items() if base.size != rows[line].size and _differs(claims, rows[line], base)}
    return replace(claims, other_kinds=sizes, effects=frozenset(bases) - frozenset(sizes))


def _against_others(claims: Claims, pooled: Claims, lines: Mapping[int, Row]) -> Iterator[tuple[int, Row]]:
    """(line, the baseline's row) of claims that do not follow from their own kind."""
    same = {claim.row.line: claim for claim in pooled.claims}
    marks: dict[object, list[Row]] = {}
    for claim in claims.claims if claims.word == "speedup" else ():
        if claim.shown.value == 1:
            marks.setdefault((claim.row.size, claim.row.subject), []).append(claim.row)
    for claim in claims.claims:
        if claims.fits(claim, claims.basis(claim)):
            continue
        if base := _baseline(claim, same[claim.row.line], pooled, lines) or _marked(
            claim, claims, marks.get((claim.row.size, claim.row.subject), ())
        ):
            yield claim.row.line, base


def _baseline(claim: Claim, other: Claim, pooled: Claims, lines: Mapping[int, Row]) -> Row | None:
    """The baseline that gives the claim where configurations are not kept apart, if none of its rows has the claim's own."""
    basis = pooled.basis(other)
    base = [lines[row.line] for row in pooled.ratios.baseline(other.row, basis.baseline)] if pooled.fits(other, basis) else []
    return base[0] if base and not any(row.configuration == claim.row.configuration for row in base) else None


def _marked(claim: Claim, claims: Claims, marks: Sequence[Row]) -> Row | None:
    """The row printed as 1 that gives a speedup."""
    metric = claims.basis(claim).metric
    mine = value(claim.row, metric)
    for row in marks:
        base = value(row, metric)
        if mine and base and (mine.over(base) if metric == "throughput" else base.over(mine)).overlaps(claim.interval):
            return row
    return None


def check_kinds(claims: Claims) -> Iterator[Finding]:
    """Rows of a larger size that are given against a row of another configuration."""
    found: dict[tuple[int, tuple[str, ...]], list[Claim]] = {}
    for claim in claims.claims:
        if base := claims.other_kinds.get(claim.row.line):
            found.setdefault((base.line, claim.row.configuration), []).append(claim)
    for of in found.values():
        yield _finding(claims, of, claims.other_kinds[of[0].row.line])


def _differs(claims: Claims, row: Row, base: Row) -> list[tuple[str, str]]:
    """(what the row has, what the baseline has); the batch of one pass falls where the global batch is held."""
    here, there = batches(row), batches(base)
    held = here and there and here[1] == there[1]
    names = claims.ratios.groups.table.configuration
    pairs = zip(names, row.configuration, base.configuration, strict=True)
    return [
        (_words(name, mine, theirs), _words(name, theirs, mine))
        for name, mine, theirs in pairs
        if mine != theirs and not (held and name == "micro_batch")
    ]


def _words(name: str, value: str, other: str) -> str:
    """`TP 4`, `no TP`, `precision bf16`."""
    if name in DEGREES or name == "parallelism":
        return value or f"no {other.partition(' ')[0]}"
    return f"{name} {value or 'not told'}"


def _finding(claims: Claims, of: Sequence[Claim], base: Row) -> Finding:
    mine, theirs = (", ".join(words) for words in zip(*_differs(claims, of[0].row, base), strict=True))
    shown = _in_words([f"{claim.shown} at {claim.row.layout}" for claim in of])
    one = len(of) == 1
    what = f"`{claims.column.header}` {shown} {'is' if one else 'are'} of {mine} against {base.layout} with {theirs}"
    own = [text for claim in of if (text := _against_own(claims, claim))]
    if own:
        baseline = claims.ratios.baseline(of[0].row, BASELINES[2])[0].layout
        right = _in_words(own)
        sentence = f"{what}; against {baseline} of {'its' if one else 'their'} own kind {'it is' if one else 'they are'} {right}"
    else:
        right, sentence = "a baseline of the same kind", f"{what}; the table has no smaller size of {mine}"
    return Finding("configuration_changed", tuple(claim.row.line for claim in of), str(of[0].shown), right, sentence)


def _against_own(claims: Claims, claim: Claim) -> str | None:
    """What follows from the smallest size of the same configuration, where that is another one."""
    basis = replace(claims.basis(claim), baseline=BASELINES[2])
    smallest = claims.ratios.baseline(claim.row, BASELINES[2])
    follows = claims.follows(claim, basis)
    if not follows or not smallest or smallest[0].size == claim.row.size:
        return None
    percent = claims.column.unit == "percent"
    more = max(0, (0 if percent else 2) - claim.shown.decimals)
    return print_like(follows[0].best * (100 if percent else 1), claim.shown, more=more)


def _in_words(parts: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
