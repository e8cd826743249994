"""Checks how sizes compare: speedups beyond the GPUs, efficiency that falls and rises again, a batch that changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpcddp.analysis.audit.basis import BASELINES, Ratios
from hpcddp.analysis.audit.cells import Interval
from hpcddp.analysis.audit.claims import Claim, Claims
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, batches, distinct, same_batch, statistic, values
from hpcddp.analysis.audit.table import Config, Row

CACHES = 0.03
NOISE = 0.03
ERRORS = 2.5
"""A speedup may exceed the ratio of GPUs a little by caches, and by so many standard errors of runs with this noise."""

SHARP = 0.8
"""Where efficiency fell below this share of a smaller size's, a rise by two standard errors counts."""


@dataclass(frozen=True)
class Measured:
    """Rows of one layout, or a baseline, and what they show together of one metric."""

    rows: Sequence[Row]
    groups: Groups
    metric: str

    @property
    def hardware(self) -> frozenset[str]:
        return frozenset[str]().union(*(self.groups.hardware[row.line] for row in self.rows))

    def speedup(self, base: Measured) -> tuple[Interval, int, int] | None:
        """Over the baseline, and of how many runs of that and of this."""
        before, after = values(base.rows, self.metric), values(self.rows, self.metric)
        if not before or not after:
            return None
        then, now = statistic("mean", before), statistic("mean", after)
        return (then.over(now) if self.metric.startswith("time") else now.over(then)), len(before), len(after)


@dataclass(frozen=True)
class Efficiency:
    """Of one layout."""

    row: Row
    interval: Interval
    runs: int
    lines: tuple[int, ...]


def check_scaling(groups: Groups, claims: Sequence[Claims]) -> Iterator[Finding]:
    """Everything that can be said of the sizes of each series."""
    ratios, reported = Ratios(groups), set[int]()
    for rows in groups.by_series().values():
        measured = [row for row in rows if row.summary is None]
        yield from _batch_changed(measured)
        base = ratios.baseline(rows[0], _declared(rows[0], claims))
        for metric in groups.table.metrics if base else ():
            larger = [row for row in measured if row.size >= base[0].size]
            for found in _of_series(larger, Measured(base, groups, metric)):
                if found.kind != "superlinear" or not reported & {found.lines[-1]}:
                    yield found
                reported |= {found.lines[-1]} if found.kind == "superlinear" else set()
    for each in claims:
        yield from (found for found in _superlinear_claims(each) if found.lines[0] not in reported)
        yield from _dips_of_claims(each)


def _declared(row: Row, claims: Sequence[Claims]) -> str:
    """The size that the columns give their series against, where it is larger than one GPU and one node; else the smallest."""
    found = {each.basis.baseline for each in claims}
    return found.pop() if len(found) == 1 and not found & set(BASELINES) else BASELINES[2]


def _of_series(rows: Sequence[Row], base: Measured) -> Iterator[Finding]:
    configs: dict[Config, list[Row]] = {}
    for row in rows:
        configs.setdefault(row.config, []).append(row)
    sizes = [Measured(of, base.groups, base.metric) for of in configs.values()]
    yield from _superlinear([size for size in sizes if size.rows[0].config != base.rows[0].config], base)
    yield from _dips([found for size in sizes if (found := _efficiency(size, base))])


def _batch_changed(rows: Sequence[Row]) -> Iterator[Finding]:
    """Neither the batch per GPU nor the global batch is the same at every size."""
    known = [row for row in rows if batches(row) and (row.values or row.claims)]
    others = [row for row in known if not same_batch(row, known[0])]
    if not others:
        return
    first, other = known[0], others[0]
    (per_gpu, total), (per_gpu_there, total_there) = batches(first) or (0, 0), batches(other) or (0, 0)
    sentence = (
        f"the batch per GPU is {per_gpu:g} at {first.layout} and {per_gpu_there:g} at {other.layout} (global batch {total:,} and "
        f"{total_there:,}), so that these rows differ by more than their GPUs"
    )
    if called := {(row.scaling or "").lower() for row in (first, *others)} - {""}:
        sentence += f", though this is called {' and '.join(sorted(called))} scaling"
    lines = tuple(row.line for row in others)
    yield Finding("batch_changed", lines, f"{per_gpu_there:g} per GPU", f"{per_gpu:g} per GPU, or {total:,} in all", sentence)


def _superlinear(sizes: Iterable[Measured], base: Measured) -> Iterator[Finding]:
    """Of each size, and of each node by itself: more than the ratio of GPUs, beyond the digits shown, caches and noise."""
    on_node: dict[str, list[Row]] = {}
    for row in base.rows:
        if row.node_list:
            on_node.setdefault(row.node_list, []).append(row)
    nodes = {name: Measured(rows, base.groups, base.metric) for name, rows in on_node.items()}
    for size in sizes:
        if found := _too_fast(size, base):
            yield found
            continue
        for row in size.rows:
            if row.node_list in nodes and (found := _too_fast(Measured([row], base.groups, base.metric), nodes[row.node_list])):
                yield found


def _too_fast(size: Measured, base: Measured) -> Finding | None:
    row, first = size.rows[0], base.rows[0]
    one_place = len(size.rows) == 1 and row.node_list == first.node_list
    speedup = size.speedup(base)
    if speedup is None or not same_batch(row, first):
        return None  # another batch is another finding
    if len(distinct(size.hardware | base.hardware)) > 1 and not one_place:
        return None  # so are different GPUs
    found, before, after = speedup
    ratio = row.size / first.size
    if found.low <= ratio * _most(before, after):
        return None
    where = f" on {row.node_list}" if len(size.rows) == 1 and row.node_list else ""
    what = f"{row.layout}{where} is {found.best:.2f} times as fast as {first.layout} with {ratio:g} times the GPUs"
    sentence = f"{what} ({100 * found.best / ratio:.0f} %)"
    lines = tuple(each.line for each in (*base.rows, *size.rows))
    return Finding("superlinear", lines, f"{found.best:.2f}", f"at most {ratio:g}", sentence)


def _most(before: int, after: int, caches: float = CACHES, errors: float = ERRORS) -> float:
    """What a speedup may be over the ratio of GPUs, by the number of runs on both sides."""
    return 1 + caches + errors * NOISE * math.sqrt(1 / before + 1 / after)


def _efficiency(size: Measured, base: Measured) -> Efficiency | None:
    """Against the smallest size; None on other GPUs or with another batch, which say nothing of size."""
    speedup, row = size.speedup(base), size.rows[0]
    if speedup is None or len(distinct(size.hardware | base.hardware)) > 1 or not same_batch(row, base.rows[0]):
        return None
    found, _, after = speedup
    return Efficiency(row, found.scaled(base.rows[0].size / row.size), after, tuple(each.line for each in size.rows))


def _dips(sizes: Sequence[Efficiency]) -> Iterator[Finding]:
    """Along the nodes, with as many GPUs on each, and along the GPUs of as many nodes; each size is named once."""
    chains: dict[tuple[str, int | None], list[Efficiency]] = {}
    for size in sorted(sizes, key=lambda size: size.row.size):
        chains.setdefault(("gpus_per_node", size.row.gpus_per_node), []).append(size)
        if size.row.gpus_per_node is not None:
            chains.setdefault(("nodes", size.row.nodes), []).append(size)
    found = {finding.lines: finding for chain in chains.values() for finding in _dips_along(chain)}
    yield from found.values()


def _dips_along(chain: Sequence[Efficiency]) -> Iterator[Finding]:
    """The lowest so far, where a larger size is better by more than noise; the first size is a baseline, and no dip."""
    best = lowest = chain[0]
    for size in chain[1:]:
        rise = size.interval.low / lowest.interval.high
        fell = lowest.interval.high < SHARP * best.interval.low
        most = _most(lowest.runs, size.runs, caches=0.0, errors=2.0) if fell else _most(lowest.runs, size.runs)
        if lowest is not chain[0] and rise > most and size.interval.low <= _most(1, 1):  # above that it is superlinear
            yield _dip(best, lowest, size)
            best = lowest = size
        best = max(best, size, key=lambda each: each.interval.best) if lowest is chain[0] else best
        lowest = size if lowest is chain[0] else min(lowest, size, key=lambda each: each.interval.best)


def _dip(before: Efficiency, lowest: Efficiency, after: Efficiency) -> Finding:
    shares = [f"{100 * each.interval.best:.0f} % at {each.row.layout}" for each in (before, lowest, after)]
    gains = f"{_gain(before, lowest)}, then {_gain(lowest, after)}"
    sentence = f"efficiency is {shares[0]}, {shares[1]} and again {shares[2]}: {gains}"
    return Finding("efficiency_dips", (*lowest.lines, *after.lines), shares[1], "efficiency that falls with size", sentence)


def _gain(small: Efficiency, large: Efficiency) -> str:
    """`x1.17 for 2 times the GPUs`"""
    ratio = large.row.size / small.row.size
    return f"x{ratio * large.interval.best / small.interval.best:.2f} for {ratio:g} times the GPUs"


def _superlinear_claims(claims: Claims) -> Iterator[Finding]:
    """Speedups above the ratio of GPUs, or efficiencies above 1, where times and rates do not show it."""
    missed, shown = {claim.row.line for claim in claims.missed}, {claim.row.line: claim.shown.value for claim in claims.claims}
    for claim in claims.claims:
        if claim.row.line in missed or not (claims.checked or not _shown(claim)):
            continue  # a number that does not follow is another finding
        base = claims.ratios.baseline(claim.row, "the smallest size")
        ratio = claim.row.size / base[0].size if base and shown.get(base[0].line, 1) == 1 else claim.row.gpus
        ratio = claims.ratios.ratio(claim.row, named) if (named := claims.column.baseline) else ratio
        if claims.word == "efficiency" and claim.interval.low > _most(1, 1):
            sentence = f"efficiency {claim.shown} is claimed at {claim.row.layout}: more than the GPUs can give"
            yield Finding("superlinear", (claim.row.line,), str(claim.shown), "at most 1 (100 %)", sentence)
        if claims.word == "speedup" and ratio and claim.interval.low > ratio * _most(1, 1) and ratio > 1:
            sentence = f"speedup {claim.shown} is claimed at {claim.row.layout}, where {ratio:g} is linear"
            yield Finding("superlinear", (claim.row.line,), str(claim.shown), f"at most {ratio:g}", sentence)


def above_linear(claims: Claims, reported: set[int]) -> Iterator[str]:
    """Remarks on speedups above linear that caches and noise may explain; not those of lines that a finding names."""
    for claim in claims.fitting:
        limit = 1.0 if claims.word == "efficiency" else claims.ratios.ratio(claim.row, claims.basis.baseline)
        if limit and claim.interval.low > limit and claim.row.line not in reported:
            what = f"line {claim.row.line}: {claims.word} {claim.shown} at {claim.row.layout}"
            yield f"{what} is above linear, within caches and noise"


def _shown(claim: Claim) -> bool:
    """Whether the row has what the claim is of."""
    return any(key.split()[0] in ("time", "throughput", "average") for key in claim.row.values)


def _dips_of_claims(claims: Claims) -> Iterator[Finding]:
    """In a table without times, or with those of work that grows with the GPUs, of which only claims give the efficiency."""
    of_series: dict[object, list[Efficiency]] = {}
    for claim in claims.claims:
        if _shown(claim) and not (claims.basis.grows and claims.fits(claim, claims.basis)):
            continue
        share = claim.interval.scaled(1 / claim.row.size) if claims.word == "speedup" else claim.interval
        found = Efficiency(claim.row, share, 1, (claim.row.line,))
        of_series.setdefault(claims.ratios.groups.series(claim.row), []).append(found)
    for sizes in of_series.values():
        if all(same_batch(size.row, sizes[0].row) for size in sizes):
            yield from _dips(sizes)
