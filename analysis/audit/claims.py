"""Do speedups and efficiencies follow from the times and throughputs beside them, and against which baseline?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcddp.analysis.audit.basis import BASELINES, Basis, Ratios, ways
from hpcddp.analysis.audit.cells import Interval, Number, alike
from hpcddp.analysis.audit.columns import Column, column
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, Series, distinct, value
from hpcddp.analysis.audit.table import Row
from hpcddp.textout import count

MOST_TRIED = 500
"""Claims by which the way they were taken is found; of more, so many all over the column."""


OF_RUNS = {"mean": "average", "min": "smallest", "max": "largest"}


@dataclass(frozen=True)
class Claim:
    """A printed speedup or efficiency."""

    row: Row
    shown: Number
    can_be: Interval
    """As a share, not in percent."""


@dataclass(frozen=True)
class Claims:
    """One column of them, and how they were most likely taken."""

    column: Column
    index: int
    claims: Sequence[Claim]
    ratios: Ratios
    open: Sequence[Basis]

    @property
    def word(self) -> str:
        return self.column.meaning or ""

    def follows(self, claim: Claim, basis: Basis) -> list[Interval]:
        """What the claim should be: from measured values, and an efficiency also from the printed speedup."""
        found = self.ratios.speedup(claim.row, basis)
        speedups = [] if found is None else [found]
        if self.word == "speedup":
            return speedups
        ratio = self.ratios.ratio(claim.row, basis.baseline)
        return [each.scaled(1 / ratio) for each in (*speedups, *self._printed(claim.row))] if ratio else []

    def _printed(self, row: Row) -> list[Interval]:
        columns = self.ratios.groups.table.claims
        return [
            shown.can_be
            for i, shown in row.claims.items()
            if columns[i].meaning == "speedup" and columns[i].baseline in (None, self.column.baseline)
        ]

    def fits(self, claim: Claim, basis: Basis) -> bool:
        return any(each.meets(claim.can_be) for each in self.follows(claim, basis))

    @cached_property
    def likely(self) -> dict[Series, Basis]:
        """For each series the way that most claims of the table fit, or one that fits all of its own where that one does not."""
        by_series: dict[Series, list[Claim]] = {}
        for claim in self.claims:
            by_series.setdefault(self.ratios.groups.series(claim.row), []).append(claim)
        usual = self._usual()
        chosen = {}
        for series, claims in by_series.items():
            fit = sum(self.fits(claim, usual) for claim in claims)
            better = [basis for basis in self.open if fit * 2 <= len(claims) and all(self.fits(claim, basis) for claim in claims)]
            chosen[series] = better[0] if better and len(claims) > 1 else usual
        return chosen

    def basis(self, claim: Claim) -> Basis:
        return self.likely[self.ratios.groups.series(claim.row)]

    @cached_property
    def checked(self) -> list[Claim]:
        """Those that something in the table gives."""
        return [claim for claim in self.claims if self.follows(claim, self.basis(claim))]

    @cached_property
    def missed(self) -> list[Claim]:
        """Those of them that do not follow."""
        return [claim for claim in self.checked if not self.fits(claim, self.basis(claim))]

    def _usual(self) -> Basis:
        """The first way that all claims fit; else the one that most fit, or that says something of most."""
        best, usual = (-1, -1), self.open[0]
        tried = self.claims[:: -(-len(self.claims) // MOST_TRIED)]
        for basis in self.open:
            known = [claim for claim in tried if self.follows(claim, basis)]
            score = (sum(self.fits(claim, basis) for claim in known), len(known))
            if score > best:
                best, usual = score, basis
            if score[0] == len(tried):
                break
        return usual


def claims_of(groups: Groups) -> list[Claims]:
    """The columns of speedups and efficiencies that hold any."""
    ratios, every, found = Ratios(groups), ways(groups), []
    for index, each in enumerate(groups.table.claims):
        scale = 0.01 if each.unit == "percent" else 1.0
        rows = [row for row in groups.table.rows if index in row.claims]
        decimals = max((row.claims[index].decimals for row in rows), default=0)
        claims = [Claim(row, shown := row.claims[index], _mark(shown, decimals).scaled(scale)) for row in rows]
        named = each.baseline or _named(rows)
        open_ = [way for way in every if named in (None, way.baseline)] if named in (None, *BASELINES) else every
        if claims:
            found.append(Claims(Column(each.header, each.meaning, each.name, each.unit, named), index, claims, ratios, open_))
    return found


def _mark(shown: Number, decimals: int) -> Interval:
    """What a claim can be; a bare `1` in a column with decimals marks the baseline and is as exact as they are."""
    if shown.value != 1 or shown.decimals or not decimals:
        return shown.can_be
    return Interval(1 - 0.5 * 10**-decimals, 1 + 10.0**-decimals, 1.0)


def _named(rows: Sequence[Row]) -> str | None:
    """The baseline that all rows name in words, if one."""
    named = {column(f"speedup vs {row.baseline}").baseline for row in rows if row.baseline}
    return named.pop() if len(named) == 1 else None


def check_claims(claims: Claims) -> Iterator[Finding]:
    """Everything that can be said of one column."""
    missed = claims.missed
    elsewhere = _other_baselines(claims, missed)
    if missed and not elsewhere and (absent := _absent_baseline(claims, missed)):
        yield absent
        return
    for claim in missed:
        if claim.row.line not in elsewhere:
            yield _wrong(claims, claim, claims.basis(claim))
    if elsewhere:
        yield _mixed(claims, elsewhere)
    elif not claims.column.baseline:
        yield from _unnamed(claims)
    yield from _other_hardware(claims)


def _absent_baseline(claims: Claims, missed: Sequence[Claim]) -> Finding | None:
    """Claims that all need the same baseline, one that no row has."""
    metric = claims.open[0].metric
    needed = []
    for claim in missed:
        mine = claims.ratios.of_rows([claim.row], metric, "mean")
        factor = claim.can_be.scaled(claim.row.size if claims.word == "efficiency" else 1.0)
        if mine is None:
            return None
        needed.append(mine.over(factor) if metric == "throughput" else mine.product(factor))
    low, high = max(each.low for each in needed), min(each.high for each in needed)
    if len(missed) < max(2, len(claims.claims)) or low > high:
        return None
    shown = next(claim.row.values[metric] for claim in missed if metric in claim.row.values)
    text = alike((low + high) / 2, shown)
    sentence = (
        f"all {len(missed)} values of `{claims.column.header}` need a baseline with a {metric} of about {text}, which no row has"
    )
    lines = tuple(claim.row.line for claim in missed)
    return Finding("baseline_missing", lines, f"{missed[-1].shown} at {missed[-1].row.layout}", f"a baseline of {text}", sentence)


def _other_baselines(claims: Claims, missed: Sequence[Claim]) -> dict[int, Basis]:
    """Line -> the way in which a claim fits against another baseline than most."""
    found: dict[int, Basis] = {}
    every = ways(claims.ratios.groups)
    for i, claim in enumerate(missed):
        usual = claims.basis(claim)
        if i == MOST_TRIED:  # then those that some claim was taken in
            every = list(dict.fromkeys(found.values()))
        for basis in every:
            if (
                basis.baseline != usual.baseline
                and (basis.metric, basis.weak) == (usual.metric, usual.weak)
                and claims.fits(claim, basis)
            ):
                found[claim.row.line] = basis
                break
    return found


def _mixed(claims: Claims, elsewhere: dict[int, Basis]) -> Finding:
    last = max((claim for claim in claims.claims if claim.row.line in elsewhere), key=lambda claim: claim.row.size)
    usual, other = claims.basis(last).baseline, elsewhere[last.row.line].baseline
    right = _shown(claims, last, claims.basis(last))
    if claims.column.baseline:
        what = f"`{claims.column.header}` {last.shown} at {last.row.layout}"
        sentence = f"{what} is against {other}, not {usual}, as the table says: that would be {right}"
        return Finding("baseline_misnamed", tuple(elsewhere), str(last.shown), right, sentence)
    values_ = f"{len(elsewhere)} of {len(claims.claims)} values of `{claims.column.header}`"
    some = f"{values_} are against {other}, the others against {usual}"
    both = {
        claim.row.line: [claims.basis(claim), elsewhere.get(claim.row.line, elsewhere[last.row.line])] for claim in claims.claims
    }
    telling = [
        claim
        for claim in claims.claims
        if all(claims.follows(claim, way) for way in both[claim.row.line])
        and sum(claims.fits(claim, way) for way in both[claim.row.line]) == 1
    ]
    largest = max(telling, key=lambda claim: claim.row.size)
    way, by = sorted(both[largest.row.line], key=lambda each: claims.fits(largest, each))
    right = _shown(claims, largest, way)
    sentence = f"{some}: {largest.shown} at {largest.row.layout} is against {by.baseline}; against {way.baseline} it is {right}"
    return Finding("baselines_mixed", tuple(elsewhere), str(largest.shown), right, sentence)


def _wrong(claims: Claims, claim: Claim, basis: Basis) -> Finding:
    follows = claims.follows(claim, basis)[0]
    right, lines = _shown(claims, claim, basis), (claim.row.line,)
    what = f"{claims.word} {claim.shown} at {claim.row.layout}"
    inverse = Interval(0.98 / follows.high, 1.02 / follows.low, 1 / follows.best)  # it may be of a rounded speedup
    if claims.word == "speedup" and inverse.meets(claim.can_be):
        return Finding(
            "speedup_inverted",
            lines,
            str(claim.shown),
            right,
            f"{what} is the inverse: the row is {right} times as fast as {basis.baseline}",
        )
    given = "speedup beside it gives"
    if value(claim.row, basis.metric) is not None or claim.row.summary:
        given = "throughput beside it gives" if basis.metric == "throughput" else "times beside it give"
    sentence = f"{what} does not follow: the {given} {right}"
    return Finding(f"{claims.word}_wrong", lines, str(claim.shown), right, sentence + _would_need(claims, claim, basis, follows))


def _would_need(claims: Claims, claim: Claim, basis: Basis, follows: Interval) -> str:
    """The value that would give the claim, instead of the one that was compared: the row's own, or what its runs come to."""
    shown, mine = claim.row.values.get(basis.metric), claims.ratios.mine(claim.row, basis)
    if shown is None or mine is None or claims.word != "speedup":
        return ""
    factor = follows.best / claim.can_be.best
    needed = mine.best * (factor if basis.metric == "time" else 1 / factor)
    of_runs = "" if claim.row.summary or mine == shown.can_be else f"the {OF_RUNS.get(basis.to, basis.to)} "
    return f" ({claim.shown} would need {alike(needed, shown)} instead of {of_runs}{alike(mine.best, shown)})"


def _shown(claims: Claims, claim: Claim, basis: Basis) -> str:
    """What follows, as the claim is printed, with a digit more where few are."""
    middle = claims.follows(claim, basis)[0].best * (100 if claims.column.unit == "percent" else 1)
    return alike(middle, claim.shown, more=max(0, (0 if claims.column.unit == "percent" else 2) - claim.shown.decimals))


def _unnamed(claims: Claims) -> Iterator[Finding]:
    """Two baselines in the table, values that differ between them, and no row of one GPU that is printed as 1."""
    one = Interval(1.0, 1.0, 1.0)
    if any(claim.row.gpus == 1 and claim.can_be.meets(one) and claim.shown.value in (1, 100) for claim in claims.claims):
        return
    told = []
    for claim in claims.claims:
        basis = claims.basis(claim)
        others = [
            way
            for way in claims.open
            if way.baseline in BASELINES[:2]
            and (way.of, way.to, way.metric, way.weak) == (basis.of, basis.to, basis.metric, basis.weak)
        ]
        for way in others:
            follows = claims.follows(claim, way)
            if way.baseline != basis.baseline and follows and not claims.fits(claim, way) and claims.fits(claim, basis):
                told.append((claim, basis, way))
    if not told:
        return
    claim, basis, way = told[-1]
    other = _shown(claims, claim, way)
    shown = f"{claim.shown} at {claim.row.layout} is against {basis.baseline}; against {way.baseline} it is {other}"
    sentence = f"`{claims.column.header}` names no baseline: {shown}"
    lines = tuple(dict.fromkeys(each.row.line for each, _, _ in told))
    yield Finding(
        "baseline_unnamed",
        lines,
        str(claim.shown),
        f"{claim.shown} against {basis.baseline}, {other} against {way.baseline}",
        sentence,
    )


def _other_hardware(claims: Claims) -> Iterator[Finding]:
    """A row of one GPU type against a baseline of another."""
    hardware = claims.ratios.groups.hardware
    found, of_baselines = [], dict[tuple[Series, str], frozenset[str]]()
    for claim in claims.claims:
        key = (claims.ratios.groups.series(claim.row), claims.basis(claim).baseline)
        if key not in of_baselines:
            base = claims.ratios.baseline(claim.row, key[1])
            of_baselines[key] = frozenset[str]().union(*(hardware[row.line] for row in base))
        there = of_baselines[key]
        here = hardware[claim.row.line]
        if len(here) == 1 and len(there) == 1 and len(distinct(here | there)) == 2:
            found.append((claim, next(iter(here)), next(iter(there))))
    if found:
        claim, here_, there_ = found[0]
        many = f" (and {count(len(found) - 1, 'more row')})" if len(found) > 1 else ""
        sentence = f"{claims.word} {claim.shown} at {claim.row.layout} compares {here_} with a baseline on {there_}{many}"
        yield Finding(
            "gpu_types_compared",
            tuple(each.row.line for each, _, _ in found),
            str(claim.shown),
            f"no baseline on {here_}",
            sentence,
        )
