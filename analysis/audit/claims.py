"""Do speedups and efficiencies follow from the times and rates beside them, and against which baseline?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hpcddp.analysis.audit.basis import BASELINES, Basis, Ratios, possible_bases
from hpcddp.analysis.audit.cells import Interval, Number, print_like
from hpcddp.analysis.audit.columns import CONFIGURATION, Column
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, Series, distinct
from hpcddp.analysis.audit.table import Row
from hpcddp.core.text import count

MOST_TRIED = 500
"""At most so many claims, spread over the column, decide on which basis it was computed."""

OF_RUNS = {"mean": "average", "min": "smallest", "max": "largest"}
NO_DDP = (
    "",
    "seq",
    "sequential",
    "-",
    "\u2013",
    "\u2014",
    "none",
    "no",
    "single",
    "serial",
    "baseline",
    "n/a",
    "1",
    "off",
    "single gpu",
    "single-gpu",
    "no ddp",
    "1 gpu",
)


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

    column: Column
    claims: Sequence[Claim]
    ratios: Ratios
    candidates: Sequence[Basis]

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
    def basis(self) -> Basis:
        """The first that all claims fit; else the one that most fit, or by which most can be checked: one for one column."""
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

    @cached_property
    def fitting(self) -> list[Claim]:
        return [claim for claim in self.claims if self.fits(claim, self.basis)]

    @cached_property
    def checked(self) -> list[Claim]:
        """The claims that can be computed from the table; none where the baseline itself is not printed as 1."""
        if self.unlike:
            return []
        return [
            claim
            for claim in self.claims
            if self.follows(claim, self.basis) and (self.fits(claim, self.basis) or self._sure(claim))
        ]

    @cached_property
    def unlike(self) -> bool:
        """Whether the baseline's own rows are not printed as 1, and little else fits."""
        own = [claim for claim in self.claims if self._is_baseline(claim)]
        return len(own) > len(self.fitting) or (bool(own) and not self.fitting)

    @cached_property
    def missed(self) -> list[Claim]:
        return [claim for claim in self.checked if not self.fits(claim, self.basis)]

    @cached_property
    def _other_kinds(self) -> set[tuple[str, ...]]:
        """Words of rows whose claims fit a baseline of other words."""
        return {claim.row.words for claim in self.fitting if not self.ratios.of_own_kind(claim.row, self.basis.baseline)}

    @cached_property
    def _foreign(self) -> set[Series]:
        """Series whose own baseline is not printed as 1: they are against another, such as that of another precision."""
        own = [claim for claim in self.claims if self._is_baseline(claim)]
        return {self.ratios.groups.series(claim.row) for claim in own if not self.fits(claim, self.basis)}

    def _is_baseline(self, claim: Claim) -> bool:
        base = self.ratios.baseline(claim.row, self.basis.baseline)
        return bool(base) and base[0].config == claim.row.config

    def _sure(self, claim: Claim) -> bool:
        """Whether its baseline is of its own words, or that of others with these words, and another row."""
        name = self.basis.baseline
        if self.ratios.groups.series(claim.row) in self._foreign:
            return False
        if self.ratios.of_own_kind(claim.row, name):
            return (
                not self._is_baseline(claim)
                or len(self.claims) == 1
                or (self.word == "efficiency" and bool(self._printed(claim.row)))
            )
        return claim.row.words in self._other_kinds and self.ratios.groups.series(claim.row) not in self.ratios.unsure


def claims_of(groups: Groups) -> list[Claims]:
    """The columns of speedups and efficiencies that hold any."""
    ratios, found = Ratios(groups), []
    for index, each in enumerate(groups.table.claims):
        scale = 0.01 if each.unit == "percent" else 1.0
        rows = [row for row in groups.table.rows if index in row.claims]
        decimals = max((row.claims[index].decimals for row in rows), default=0)
        claims = [Claim(row, shown := row.claims[index], _mark(shown, decimals).scaled(scale)) for row in rows]
        named = each.baseline
        every = possible_bases(groups, _marked(claims) if named is None else [named] if named not in BASELINES else [])
        if claims and every:
            found.append(Claims(each, claims, ratios, [way for way in every if named in (None, way.baseline)] or every))
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


def check_claims(claims: Claims) -> Iterator[Finding]:
    """Everything that can be said of one column; of one against nothing in the table, whether one baseline explains it."""
    if claims.unlike:
        missed = [claim for claim in claims.claims if claims.follows(claim, claims.basis)]
        elsewhere = _other_baselines(claims, missed)
        named = claims.column.baseline and len(elsewhere) == len(missed) > 0
        found = _mixed(claims, elsewhere) if named else _absent_baseline(claims, missed) if missed else None
        yield from [found] if found else []
        return
    missed = claims.missed
    elsewhere = _other_baselines(claims, missed)
    if missed and not elsewhere and (absent := _absent_baseline(claims, missed)):
        yield absent
        return
    for claim in missed:
        if claim.row.line not in elsewhere:
            yield _wrong(claims, claim)
    if elsewhere:
        yield _mixed(claims, elsewhere)
    elif not claims.column.baseline:
        yield from _unnamed(claims)
    yield from _other_hardware(claims)
    yield from _other_configuration(claims)


def _absent_baseline(claims: Claims, missed: Sequence[Claim]) -> Finding | None:
    """Claims that all need the same baseline, one that no row has."""
    metric, needed = claims.basis.metric, []
    if claims.ratios.groups.table.unread:
        return None  # it may be a row without a size, such as `CPU`
    of_time = claims.ratios.of_time(metric)
    for claim in missed:
        mine = claims.ratios.of_rows([claim.row], metric, "mean")
        factor = claim.interval.scaled(claim.row.size if claims.word == "efficiency" else 1.0)
        if mine is None:
            return None
        needed.append(mine.product(factor) if of_time else mine.over(factor))
    low, high = max(each.low for each in needed), min(each.high for each in needed)
    if len(missed) < max(2, len(claims.claims) - 1) or low > high:
        return None
    shown = next(claim.row.values[metric] for claim in missed if metric in claim.row.values)
    text = print_like((low + high) / 2, shown)
    what = (
        f"all {len(missed)} values of `{claims.column.header}` need a baseline with a {metric} of about {text}, which no row has"
    )
    lines = tuple(claim.row.line for claim in missed)
    return Finding("baseline_missing", lines, f"{missed[-1].shown} at {missed[-1].row.layout}", f"a baseline of {text}", what)


def _other_baselines(claims: Claims, missed: Sequence[Claim]) -> dict[int, Basis]:
    """Line -> the way in which a claim fits against another baseline than most."""
    found: dict[int, Basis] = {}
    usual = claims.basis
    every = [way for way in possible_bases(claims.ratios.groups) if (way.metric, way.grows) == (usual.metric, usual.grows)]
    for i, claim in enumerate(missed):
        if i == MOST_TRIED:  # then those that some claim was taken in
            every = list(dict.fromkeys(found.values()))
        for basis in every:
            own = claims.ratios.of_own_kind(claim.row, basis.baseline)
            if own and basis.baseline != usual.baseline and claims.fits(claim, basis):
                found[claim.row.line] = basis
                break
    return found


def _mixed(claims: Claims, elsewhere: dict[int, Basis]) -> Finding:
    last = max((claim for claim in claims.claims if claim.row.line in elsewhere), key=lambda claim: claim.row.size)
    usual, other = claims.basis, elsewhere[last.row.line].baseline
    right = _shown(claims, last, usual)
    if claims.column.baseline:
        what = f"`{claims.column.header}` {last.shown} at {last.row.layout}"
        sentence = f"{what} is against {other}, not {usual.baseline}, as the table says: that would be {right}"
        return Finding("baseline_misnamed", tuple(elsewhere), str(last.shown), right, sentence)
    some = f"{len(elsewhere)} of {len(claims.claims)} values of `{claims.column.header}` are against {other}"
    some += f", the others against {usual.baseline}"
    both = {claim.row.line: [usual, elsewhere.get(claim.row.line, elsewhere[last.row.line])] for claim in claims.claims}
    telling = [
        claim
        for claim in claims.claims
        if all(claims.follows(claim, way) for way in both[claim.row.line])
        and sum(claims.fits(claim, way) for way in both[claim.row.line]) == 1
    ]
    largest = max(telling, key=lambda claim: claim.row.size, default=last)
    way, by = sorted(both[largest.row.line], key=lambda each: claims.fits(largest, each))
    right = _shown(claims, largest, way)
    sentence = f"{some}: {largest.shown} at {largest.row.layout} is against {by.baseline}; against {way.baseline} it is {right}"
    return Finding("baselines_mixed", tuple(elsewhere), str(largest.shown), right, sentence)


def _wrong(claims: Claims, claim: Claim) -> Finding:
    basis = claims.basis
    follows = claims.follows(claim, basis)[0]
    right, lines = _shown(claims, claim, basis), (claim.row.line,)
    what = f"{claims.word} {claim.shown} at {claim.row.layout}"
    inverse = Interval(0.98 / follows.high, 1.02 / follows.low, 1 / follows.best)  # it may be of a rounded speedup
    if claims.word == "speedup" and inverse.overlaps(claim.interval):
        sentence = f"{what} is the inverse: the row is {right} times as fast as {basis.baseline}"
        return Finding("speedup_inverted", lines, str(claim.shown), right, sentence)
    given = "speedup beside it gives"
    if claim.row.value(basis.metric) is not None or claim.row.summary:
        of_time = claims.ratios.of_time(basis.metric)
        given = "times beside it give" if of_time else "throughput beside it gives"
    against = (
        ""
        if claims.ratios.of_own_kind(claim.row, basis.baseline)
        else f" against {claims.ratios.baseline(claim.row, basis.baseline)[0].layout}"
    )
    sentence = f"{what} does not follow: the {given} {right}{against}"
    return Finding(f"{claims.word}_wrong", lines, str(claim.shown), right, sentence + _would_need(claims, claim, follows))


def _would_need(claims: Claims, claim: Claim, follows: Interval) -> str:
    """The value that would give the claim, instead of the one that was compared: the row's own, or what its runs come to."""
    basis = claims.basis
    shown, mine = claim.row.values.get(basis.metric), claims.ratios.row_value(claim.row, basis)
    if shown is None or mine is None or claims.word != "speedup":
        return ""
    factor = follows.best / claim.interval.best
    of_time = claims.ratios.of_time(basis.metric)
    needed = mine.best * (factor if of_time else 1 / factor)
    own = claim.row.summary or mine == shown.interval
    of_runs = "" if own else f"the {OF_RUNS.get(basis.row_statistic, basis.row_statistic)} "
    return f" ({claim.shown} would need {print_like(needed, shown)} instead of {of_runs}{print_like(mine.best, shown)})"


def _shown(claims: Claims, claim: Claim, basis: Basis) -> str:
    """What follows, as the claim is printed, with a digit more where few are."""
    percent = claims.column.unit == "percent"
    middle = claims.follows(claim, basis)[0].best * (100 if percent else 1)
    return print_like(middle, claim.shown, more=max(0, (0 if percent else 2) - claim.shown.decimals))


def _unnamed(claims: Claims) -> Iterator[Finding]:
    """Two baselines in the table, values that differ between them, and no row of one GPU that is printed as 1."""
    one = Interval(1.0, 1.0, 1.0)
    if any(claim.row.gpus == 1 and claim.interval.overlaps(one) and claim.shown.value in (1, 100) for claim in claims.claims):
        return
    basis, found = claims.basis, []
    for way in (replace(basis, baseline=name) for name in BASELINES[:2] if name != basis.baseline):
        for claim in claims.fitting:
            of_own = claims.ratios.baseline(claim.row, way.baseline) and claims.ratios.of_own_kind(claim.row, way.baseline)
            if of_own and claims.follows(claim, way) and not claims.fits(claim, way):
                found.append((claim, way))
    if not found:
        return
    claim, way = found[-1]
    other = _shown(claims, claim, way)
    both = f"{claim.shown} at {claim.row.layout} is against {basis.baseline}; against {way.baseline} it is {other}"
    follows = f"{claim.shown} against {basis.baseline}, {other} against {way.baseline}"
    lines = tuple(dict.fromkeys(each.row.line for each, _ in found))
    yield Finding("baseline_unnamed", lines, str(claim.shown), follows, f"`{claims.column.header}` names no baseline: {both}")


def _other_hardware(claims: Claims) -> Iterator[Finding]:
    """Rows of one GPU type against a baseline of another."""
    hardware = claims.ratios.groups.hardware
    of_baselines: dict[object, frozenset[str]] = {}
    found = []
    for claim in claims.claims if claims.basis.scope != "gpu_type" else ():
        key = claims.ratios.groups.series(claim.row)
        if key not in of_baselines:
            base = claims.ratios.baseline(claim.row, claims.basis.baseline)
            of_baselines[key] = frozenset[str]().union(*(hardware[row.line] for row in base))
        here, there = hardware[claim.row.line], of_baselines[key]
        if len(here) == 1 and len(there) == 1 and len(distinct(here | there)) == 2:
            found.append((claim, next(iter(here)), next(iter(there))))
    if found:
        claim, here_, there_ = found[0]
        many = f" (and {count(len(found) - 1, 'more row')})" if len(found) > 1 else ""
        sentence = f"{claims.word} {claim.shown} at {claim.row.layout} compares {here_} with a baseline on {there_}{many}"
        lines = tuple(each.row.line for each, _, _ in found)
        yield Finding("gpu_types_compared", lines, str(claim.shown), f"no baseline on {here_}", sentence)


def _other_configuration(claims: Claims) -> Iterator[Finding]:
    """Rows against a baseline of another strategy or precision; one GPU without DDP is the usual baseline of DDP."""
    found: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims.checked:
        base = claims.ratios.baseline(claim.row, claims.basis.baseline)
        if base and not claims.ratios.of_own_kind(claim.row, claims.basis.baseline) and base[0].size != claim.row.size:
            mine, theirs = _differ(claims, claim.row, base[0])
            if mine:
                found.setdefault((mine, theirs), []).append(claim)
    for (mine, theirs), of in found.items():
        first = claims.ratios.baseline(of[0].row, claims.basis.baseline)[0]
        shown = ", ".join(f"{claim.shown} at {claim.row.layout}" for claim in of)
        sentence = (
            f"`{claims.column.header}` {shown} {'is' if len(of) == 1 else 'are'} of {mine} against {first.layout} with {theirs}"
        )
        lines = tuple(claim.row.line for claim in of)
        yield Finding("configuration_changed", lines, str(of[0].shown), "a baseline of the same kind", sentence)


def _differ(claims: Claims, row: Row, base: Row) -> tuple[str, str]:
    """(what the row has, what the baseline has) in columns that say how it was trained."""
    pairs = [
        (mine, theirs or "none")
        for each, mine, theirs in zip(claims.ratios.groups.table.apart, row.words, base.words, strict=True)
        if each.name in CONFIGURATION
        and _no_degree(mine) != _no_degree(theirs)
        and not (base.gpus == 1 and theirs.lower() in NO_DDP)
    ]
    return ", ".join(mine for mine, _ in pairs), ", ".join(theirs for _, theirs in pairs)


def _no_degree(words: str) -> str:
    """`fsdp16` as `fsdp`: how many ranks share the data follows from the GPUs."""
    return re.sub(r"((?:fsdp|hsdp|ddp|dp)[\s_=:×x-]*)\d+", r"\1", words.lower())
