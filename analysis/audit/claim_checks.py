"""Do speedups and efficiencies follow from the times and throughputs beside them, and against which baseline?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcddp.analysis.audit.basis import BASELINES, Basis, possible_bases
from hpcddp.analysis.audit.cells import Interval, print_like
from hpcddp.analysis.audit.claims import MOST_TRIED, Claim, Claims
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Series, distinct, value
from hpcddp.core.text import count

OF_RUNS = {"mean": "average", "min": "smallest", "max": "largest"}


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
    metric = claims.candidates[0].metric
    needed = []
    for claim in missed:
        mine = claims.ratios.of_rows([claim.row], metric, "mean")
        factor = claim.interval.scaled(claim.row.size if claims.word == "efficiency" else 1.0)
        if mine is None:
            return None
        needed.append(mine.over(factor) if metric == "throughput" else mine.product(factor))
    low, high = max(each.low for each in needed), min(each.high for each in needed)
    if len(missed) < max(2, len(claims.claims)) or low > high:
        return None
    shown = next(claim.row.values[metric] for claim in missed if metric in claim.row.values)
    text = print_like((low + high) / 2, shown)
    sentence = (
        f"all {len(missed)} values of `{claims.column.header}` need a baseline with a {metric} of about {text}, which no row has"
    )
    lines = tuple(claim.row.line for claim in missed)
    return Finding("baseline_missing", lines, f"{missed[-1].shown} at {missed[-1].row.layout}", f"a baseline of {text}", sentence)


def _other_baselines(claims: Claims, missed: Sequence[Claim]) -> dict[int, Basis]:
    """Line -> the way in which a claim fits against another baseline than most."""
    found: dict[int, Basis] = {}
    every = possible_bases(claims.ratios.groups)
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
    if claims.word == "speedup" and inverse.overlaps(claim.interval):
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
    shown, mine = claim.row.values.get(basis.metric), claims.ratios.row_value(claim.row, basis)
    if shown is None or mine is None or claims.word != "speedup":
        return ""
    factor = follows.best / claim.interval.best
    needed = mine.best * (factor if basis.metric == "time" else 1 / factor)
    of_runs = (
        "" if claim.row.summary or mine == shown.interval else f"the {OF_RUNS.get(basis.row_statistic, basis.row_statistic)} "
    )
    return f" ({claim.shown} would need {print_like(needed, shown)} instead of {of_runs}{print_like(mine.best, shown)})"


def _shown(claims: Claims, claim: Claim, basis: Basis) -> str:
    """What follows, as the claim is printed, with a digit more where few are."""
    middle = claims.follows(claim, basis)[0].best * (100 if claims.column.unit == "percent" else 1)
    return print_like(middle, claim.shown, more=max(0, (0 if claims.column.unit == "percent" else 2) - claim.shown.decimals))


def _unnamed(claims: Claims) -> Iterator[Finding]:
    """Two baselines in the table, values that differ between them, and no row of one GPU that is printed as 1."""
    one = Interval(1.0, 1.0, 1.0)
    if any(claim.row.gpus == 1 and claim.interval.overlaps(one) and claim.shown.value in (1, 100) for claim in claims.claims):
        return
    ambiguous = []
    for claim in claims.claims:
        basis = claims.basis(claim)
        others = [
            way
            for way in claims.candidates
            if way.baseline in BASELINES[:2]
            and claims.ratios.baseline(claim.row, way.baseline)
            and (way.baseline_statistic, way.row_statistic, way.metric, way.weak)
            == (basis.baseline_statistic, basis.row_statistic, basis.metric, basis.weak)
        ]
        for way in others:
            follows = claims.follows(claim, way)
            if way.baseline != basis.baseline and follows and not claims.fits(claim, way) and claims.fits(claim, basis):
                ambiguous.append((claim, basis, way))
    if not ambiguous:
        return
    claim, basis, way = ambiguous[-1]
    other = _shown(claims, claim, way)
    shown = f"{claim.shown} at {claim.row.layout} is against {basis.baseline}; against {way.baseline} it is {other}"
    sentence = f"`{claims.column.header}` names no baseline: {shown}"
    lines = tuple(dict.fromkeys(each.row.line for each, _, _ in ambiguous))
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
