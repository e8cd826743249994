"""Do speedups and efficiencies follow from the times and rates beside them, and against which baseline?"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from hpcddp.analysis.audit.cells import SETTINGS, AuditColumn, Interval, Number, print_like
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import BASELINES, Groups, Runs
from hpcddp.analysis.audit.table import Row, lines_of
from hpcddp.core.text import count

DEGREE = re.compile(r"((?:fsdp|hsdp|ddp|dp)[\s_=:×x-]*)\d+")
"""`fsdp16` is `fsdp`: how many ranks share the data follows from the GPUs."""
NO_DDP = re.compile(r"[-\u2013\u2014]?|seq(uential)?|none|no|single([ -]gpu)?|serial|baseline|n/a|1|off|no ddp|1 gpu")


@dataclass(frozen=True)
class Basis:
    """One way to compute it."""

    baseline: str
    metric: str
    grows: bool
    """Times are of work that grows with the GPUs; rates are of one GPU."""
    own: bool
    """Of the row's value itself, not of the average of its runs."""


@dataclass
class Claims:
    """One column of claims, and the basis on which it was computed."""

    groups: Groups
    column: AuditColumn

    @cached_property
    def rows(self) -> list[Row]:
        return [row for row in self.groups.table.rows if self.column.key in row.numbers]

    def shown(self, row: Row) -> Number:
        return row.numbers[self.column.key]

    def base(self, row: Row) -> Runs:
        return self.groups.baseline(row, self.basis.baseline)

    def follows(self, row: Row, basis: Basis) -> list[Interval]:
        """What the claim should be: from an average as printed, from means; for an efficiency also from the printed speedup."""
        ratio = self.groups.ratio(row, basis.baseline)
        if ratio is None:
            return []
        before, mine = self.groups.before(row, basis.baseline, basis.metric), self.after(row, basis)
        speedups = [base.over(mine) if basis.metric.startswith("time") else mine.over(base) for base in before] if mine else []
        speedups = [each.scaled(ratio) for each in speedups] if basis.grows else speedups
        if self.column.meaning == "speedup":
            return speedups
        return [each.scaled(1 / ratio) for each in (*speedups, *self._printed(row))]

    def after(self, row: Row, basis: Basis) -> Interval | None:
        """What the row comes to: its value, or the mean of its runs."""
        of_runs = not row.summary and not basis.own
        return self.groups.runs[row.config].mean(basis.metric) if of_runs else row.value(basis.metric)

    def _printed(self, row: Row) -> list[Interval]:
        """Speedups beside it, against the same baseline."""
        columns = [(row.numbers.get(key), each) for key, each in self.groups.table.columns.items() if each.meaning == "speedup"]
        return [shown.interval for shown, each in columns if shown and each.baseline in (None, self.column.baseline)]

    def fits(self, row: Row, basis: Basis) -> bool:
        return any(each.overlaps(self.shown(row).interval) for each in self.follows(row, basis))

    @cached_property
    def basis(self) -> Basis:
        """One for a column: the first that most claims fit, or by which most can be checked; a size that alone has 1 may be."""
        table = self.groups.table
        marked = {count(row.size, "GPU") for row in self.rows if row.gpus and self.shown(row).value == 1} - {"1 GPU"}
        names = [self.column.baseline] if self.column.baseline else [*BASELINES, *(marked if len(marked) == 1 else ())]
        grid = itertools.product((False, True), table.metrics, (False, True), names)
        ways = [Basis(name, metric, grows, own) for grows, metric, own, name in grid if not (grows and table.is_each(metric))]
        return max(ways, key=lambda way: [sum(bool(test(row, way)) for row in self.rows) for test in (self.fits, self.follows)])

    @cached_property
    def fitting(self) -> list[Row]:
        return [row for row in self.rows if self.fits(row, self.basis)]

    @cached_property
    def astray(self) -> list[Row]:
        return [row for row in self.rows if self.follows(row, self.basis) and not self.fits(row, self.basis)]

    @cached_property
    def missed(self) -> list[Row]:
        """Those whose baseline is sure to be the one that is meant: of their own words, or that of others with these words."""
        bases = [row for row in self.astray if [base.config for base in self.base(row).rows[:1]] == [row.config]]
        foreign = {self.groups.series_of(row) for row in bases}  # such as of another precision
        others = {row.words for row in self.fitting if not self.base(row).own}
        known = [row for row in self.astray if self.groups.series_of(row) not in foreign]
        return [row for row in known if self.base(row).own or (self.base(row).sure and row.words in others)]

    @cached_property
    def checked(self) -> list[Row]:
        return [*self.fitting, *self.missed]

    def right(self, row: Row, basis: Basis) -> str:
        """What follows, as the claim is printed, with a digit more where few are."""
        least = 0 if self.column.unit == "percent" else 2
        shown = self.shown(row)
        return print_like(self.follows(row, basis)[0].best, shown, more=max(0, least - shown.decimals))


def check_claims(claims: Claims) -> Iterator[Finding]:
    """Everything that can be said of one column."""
    elsewhere = _elsewhere(claims, claims.missed)
    if claims.column.baseline and len(others := _elsewhere(claims, claims.astray)) == len(claims.astray):
        elsewhere = others
    yield from (_wrong(claims, row) for row in claims.missed if row not in elsewhere)
    yield from _other_baseline(claims, elsewhere) if elsewhere or claims.column.baseline else _unnamed(claims)
    yield from _other_configuration(claims)


def _elsewhere(claims: Claims, rows: Iterable[Row]) -> dict[Row, Basis]:
    """Rows whose claims fit another baseline than most, of their own words."""
    ways = [replace(claims.basis, baseline=name, own=own) for own in (True, False) for name in reversed(BASELINES)]
    ways = [way for way in ways if way.baseline != claims.basis.baseline]
    return {row: way for row in rows for way in ways if claims.groups.baseline(row, way.baseline).own and claims.fits(row, way)}


def _other_baseline(claims: Claims, elsewhere: dict[Row, Basis]) -> Iterator[Finding]:
    """Two baselines in one column, or another than its header names."""
    if elsewhere:
        row = max(elsewhere, key=lambda row: row.size)
        named, other, usual = claims.column.baseline, elsewhere[row], claims.basis
        some = f"{len(elsewhere)} of {len(claims.rows)} values of `{claims.column.header}` are against {other.baseline}"
        rest = f"but the header names {usual.baseline}" if named else f"the others against {usual.baseline}"
        what, right = _both(claims, row, other, usual)
        kind = "baseline_misnamed" if named else "baselines_mixed"
        yield Finding(kind, lines_of(elsewhere), str(claims.shown(row)), right, f"{some}, {rest}. {what}")


def _unnamed(claims: Claims) -> Iterator[Finding]:
    """Two baselines in the table, values that differ between them, and no row of one GPU that is printed as 1."""
    if any(row.gpus == 1 and claims.shown(row).value == 1 for row in claims.rows):
        return
    ways = [replace(claims.basis, baseline=name) for name in BASELINES[:2] if name != claims.basis.baseline]
    bases = [(row, way, claims.groups.baseline(row, way.baseline)) for way in ways for row in claims.fitting]
    own = [(row, way) for row, way, base in bases if base.rows and base.own]
    found = [(row, way) for row, way in own if claims.follows(row, way) and not claims.fits(row, way)]
    if found:
        row, way = found[-1]
        what, right = _both(claims, row, claims.basis, way)
        follows = f"{claims.shown(row)} against {claims.basis.baseline}, {right} against {way.baseline}"
        sentence = f"`{claims.column.header}` names no baseline: {what}"
        yield Finding("baseline_unnamed", lines_of(dict(found)), str(claims.shown(row)), follows, sentence)


def _both(claims: Claims, row: Row, fits: Basis, other: Basis) -> tuple[str, str]:
    right, shown = claims.right(row, other), claims.shown(row)
    return f"{shown} at {row.layout} is against {fits.baseline}; against {other.baseline} it is {right}", right


def _wrong(claims: Claims, row: Row) -> Finding:
    basis, shown, right, word = claims.basis, claims.shown(row), claims.right(row, claims.basis), claims.column.meaning
    given = "times beside it give" if basis.metric.startswith("time") else "throughput beside it gives"
    given = given if claims.after(row, basis) else "speedup beside it gives"
    against = "" if claims.base(row).own else f" against {claims.base(row).rows[0].layout}"
    sentence = f"{word} {shown} at {row.layout} does not follow: the {given} {right}{against}"
    return Finding(f"{word}_wrong", (row.line,), str(shown), right, sentence)


def _other_configuration(claims: Claims) -> Iterator[Finding]:
    """Rows against a baseline of another strategy or precision; one GPU without DDP is the usual baseline of DDP."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in claims.checked:
        base = claims.base(row)
        if base.rows and not base.own and base.rows[0].size != row.size and (differ := _differ(claims, row, base.rows[0])):
            found.setdefault(differ, []).append(row)
    for (mine, theirs), of in found.items():
        shown = ", ".join(f"{claims.shown(row)} at {row.layout}" for row in of)
        are = f"{'is' if len(of) == 1 else 'are'} of {mine} against {claims.base(of[0]).rows[0].layout} with {theirs}"
        sentence = f"`{claims.column.header}` {shown} {are}"
        yield Finding("configuration_changed", lines_of(of), str(claims.shown(of[0])), "a baseline of the same kind", sentence)


def _differ(claims: Claims, row: Row, base: Row) -> tuple[str, str] | None:
    """(what the row has, what the baseline has) in columns that say how it was trained."""
    pairs = [
        (mine, theirs or "none")
        for each, mine, theirs in zip(claims.groups.table.apart, row.words, base.words, strict=True)
        if SETTINGS.fullmatch(each.name)
        and DEGREE.sub(r"\1", mine.lower()) != DEGREE.sub(r"\1", theirs.lower())
        and not (base.gpus == 1 and NO_DDP.fullmatch(theirs.lower()))
    ]
    return (", ".join(mine for mine, _ in pairs), ", ".join(theirs for _, theirs in pairs)) if pairs else None
