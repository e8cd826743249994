"""Printed speedups and efficiencies, and the basis on which they were most likely computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hpcddp.analysis.audit.basis import BASELINES, Basis, Ratios, possible_bases
from hpcddp.analysis.audit.cells import Interval, Number
from hpcddp.analysis.audit.columns import AuditColumn, column
from hpcddp.analysis.audit.groups import Groups, Series
from hpcddp.analysis.audit.row import Row
from hpcddp.core.text import count

MOST_TRIED = 500
"""At most so many claims, spread over the column, decide on which basis it was computed."""


@dataclass(frozen=True)
class Claim:
    """A printed speedup or efficiency."""

    row: Row
    shown: Number
    interval: Interval
    """As a share, not in percent."""


@dataclass(frozen=True)
class Claims:
    """One column of claims, and the bases on which it may have been computed."""

    column: AuditColumn
    index: int
    claims: Sequence[Claim]
    ratios: Ratios
    candidates: Sequence[Basis]
    other_kinds: Mapping[int, Row] = field(default_factory=dict)
    """Line of a claim -> the row of another configuration, and another size, that it is against."""
    effects: frozenset[int] = frozenset()
    """Lines of claims against another configuration of the same size, or one that differs as the batch must."""

    @property
    def word(self) -> str:
        return self.column.meaning or ""

    def follows(self, claim: Claim, basis: Basis) -> list[Interval]:
        """The values that the claim should have: from measured values, and for an efficiency also from the printed speedup."""
        found = self.ratios.speedup(claim.row, basis)
        speedups = [] if found is None else [found]
        if self.word == "speedup":
            return speedups
        ratio = self.ratios.ratio(claim.row, basis.baseline)
        return [each.scaled(1 / ratio) for each in (*speedups, *self._printed(claim.row))] if ratio else []

    def _printed(self, row: Row) -> list[Interval]:
        columns = self.ratios.groups.table.claims
        return [
            shown.interval
            for i, shown in row.claims.items()
            if columns[i].meaning == "speedup" and columns[i].baseline in (None, self.column.baseline)
        ]

    def fits(self, claim: Claim, basis: Basis) -> bool:
        return any(each.overlaps(claim.interval) for each in self.follows(claim, basis))

    @cached_property
    def likely(self) -> dict[Series, Basis]:
        """For each series the basis that most claims fit; where at most half of its own do, one that all of them fit."""
        by_series: dict[Series, list[Claim]] = {}
        for claim in self.claims:
            by_series.setdefault(self.ratios.groups.series(claim.row), []).append(claim)
        usual = self._usual()
        chosen = {}
        for series, claims in by_series.items():
            fit = sum(self.fits(claim, usual) for claim in claims)
            better = [
                basis for basis in self.candidates if fit * 2 <= len(claims) and all(self.fits(claim, basis) for claim in claims)
            ]
            chosen[series] = better[0] if better and len(claims) > 1 else usual
        return chosen

    def basis(self, claim: Claim) -> Basis:
        return self.likely[self.ratios.groups.series(claim.row)]

    @cached_property
    def checked(self) -> list[Claim]:
        """The claims that can be computed from the table."""
        return [claim for claim in self.claims if self.follows(claim, self.basis(claim)) or self._of_other_kind(claim)]

    @cached_property
    def missed(self) -> list[Claim]:
        """The checked claims that are wrong, whatever kind of row they are against."""
        known = [claim for claim in self.checked if not self._of_other_kind(claim)]
        return [claim for claim in known if not self.fits(claim, self.basis(claim))]

    def _of_other_kind(self, claim: Claim) -> bool:
        return claim.row.line in self.other_kinds or claim.row.line in self.effects

    def _usual(self) -> Basis:
        """The first basis that all claims fit; else the one that most fit, or by which most can be checked."""
        best, usual = (-1, -1), self.candidates[0]
        tried = self.claims[:: -(-len(self.claims) // MOST_TRIED)]
        for basis in self.candidates:
            known = [claim for claim in tried if self.follows(claim, basis)]
            score = (sum(self.fits(claim, basis) for claim in known), len(known))
            if score > best:
                best, usual = score, basis
            if score[0] == len(tried):
                break
        return usual


def claims_of(groups: Groups) -> list[Claims]:
    """The columns of speedups and efficiencies that hold any."""
    ratios, found = Ratios(groups), []
    for index, each in enumerate(groups.table.claims):
        scale = 0.01 if each.unit == "percent" else 1.0
        rows = [row for row in groups.table.rows if index in row.claims]
        decimals = max((row.claims[index].decimals for row in rows), default=0)
        claims = [Claim(row, shown := row.claims[index], _mark(shown, decimals).scaled(scale)) for row in rows]
        named = each.baseline or _named(rows)
        every = possible_bases(groups, _marked(claims) if named is None else [named] if named not in BASELINES else [])
        open_ = [way for way in every if named in (None, way.baseline)]
        if claims:
            found.append(
                Claims(AuditColumn(each.header, each.meaning, each.name, each.unit, named), index, claims, ratios, open_)
            )
    return found


def _mark(shown: Number, decimals: int) -> Interval:
    """What a claim can be; a bare `1` in a column with decimals marks the baseline and is as exact as they are."""
    if shown.value != 1 or shown.decimals or not decimals:
        return shown.interval
    return Interval(1 - 0.5 * 10**-decimals, 1 + 10.0**-decimals, 1.0)


def _marked(claims: Sequence[Claim]) -> list[str]:
    """The one size, other than one GPU or one node, whose rows alone are printed as 1 or 100 %."""
    marked = {count(claim.row.size, "GPU") for claim in claims if claim.row.gpus and claim.shown.value in (1, 100)}
    return sorted(marked) if len(marked) == 1 and marked != {"1 GPU"} else []


def _named(rows: Sequence[Row]) -> str | None:
    """The baseline that all rows name in words, if one."""
    named = {column(f"speedup vs {row.baseline}").baseline for row in rows if row.baseline}
    return named.pop() if len(named) == 1 else None
