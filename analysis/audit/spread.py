"""Do repeated runs agree, and are the claimed effects larger than the spread of the runs?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcddp.analysis.audit.cells import Interval, Number, print_like
from hpcddp.analysis.audit.claims import Claims
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, statistic, values
from hpcddp.analysis.audit.table import Config, Row

DISAGREE = 1.2
"""Slowest over fastest run of one configuration on one GPU type: more than noise."""

IN_STEP = 1.02
"""Slowest over fastest rank of one run that exchanges gradients in every step: more than how they start and end."""

RANK = re.compile(r"rank[ _-]?\d+")


def check_runs(groups: Groups) -> Iterator[Finding]:
    """Runs of one configuration that disagree, ranks of one run that do, and values that are rounded."""
    for rows in groups.runs.values():
        yield from _disagree(rows, groups)
        yield from _ranks_apart([row for row in rows if RANK.fullmatch((row.run or "").lower())])
    yield from _rounded(groups.table.measured)


def check_effects(claims: Claims) -> Iterator[Finding]:
    """A speedup whose slowest run is slower than the baseline's fastest."""
    reported = set[Config]()
    for claim in claims.claims if claims.word == "speedup" else ():
        if claim.interval.low <= 1 or claim.row.config in reported:
            continue
        reported.add(claim.row.config)
        basis, groups = claims.basis, claims.ratios.groups
        base, mine = claims.ratios.baseline(claim.row, basis.baseline), groups.runs.get(claim.row.config, [])
        if len(base) < 2 or len(mine) < 2 or mine[0].size == base[0].size:
            continue
        before, after = values(base, basis.metric), values(mine, basis.metric)
        if len(before) < 2 or len(after) < 2:
            continue
        if basis.grows:
            before = [each.scaled(mine[0].size / base[0].size) for each in before]
        apart, worst, best = _apart(before, after, basis.metric)
        if not apart:
            shown = next(row.values[basis.metric] for row in mine if basis.metric in row.values)
            slow, fast = (f"{row.layout} ({print_like(at, shown)})" for row, at in ((claim.row, worst), (base[0], best)))
            runs = f"a run of {slow} is slower than one of {fast}"
            sentence = f"speedup {claim.shown} is claimed at {claim.row.layout}, but {runs}: the spread is larger than the effect"
            lines = tuple(row.line for row in (*base, *mine))
            yield Finding("spread_exceeds_effect", lines, str(claim.shown), "ranges that overlap", sentence)


def _apart(before: Sequence[Interval], after: Sequence[Interval], metric: str) -> tuple[bool, float, float]:
    """(whether every run after is faster than every run before, the slowest after, the fastest before)"""
    if metric.startswith("time"):
        worst, best = statistic("max", after), statistic("min", before)
        return worst.low <= best.high, worst.best, best.best
    worst, best = statistic("min", after), statistic("max", before)
    return worst.high >= best.low, worst.best, best.best


def comparable(rows: Sequence[Row], groups: Groups) -> Iterator[list[tuple[Interval, Row]]]:
    """Of the runs of one configuration: what those on one GPU type measured, where there are several."""
    for hardware in dict.fromkeys(groups.hardware[row.line] for row in rows):
        same = [row for row in rows if groups.hardware[row.line] == hardware]
        known = [(found, row) for row in same if (found := row.value(groups.table.metric))]
        if len(known) > 1 and len(hardware) < 2:
            yield known


def _disagree(rows: Sequence[Row], groups: Groups) -> Iterator[Finding]:
    for known in comparable(rows, groups):
        (low, first), (high, last) = (pick(known, key=lambda pair: pair[0].best) for pick in (min, max))
        if high.low > DISAGREE * low.high:
            metric = groups.table.metric
            ends = [f"{row.values[metric]}{f' on {row.node_list}' if row.node_list else ''}" for row in (first, last)]
            kind = "".join(f" on {each}" for each in groups.hardware[first.line])
            ratio = f"{high.best / low.best:.2f}"
            sentence = f"{len(known)} runs of {first.layout}{kind} differ by up to {ratio} times: {ends[0]} to {ends[1]}"
            yield Finding(
                "runs_disagree",
                tuple(row.line for _, row in known),
                "runs of one configuration",
                f"{ratio} times apart",
                sentence,
            )


def _ranks_apart(rows: Sequence[Row]) -> Iterator[Finding]:
    """Ranks of one run that differ in the time of a step, or of all steps, did not wait for each other."""
    known = [(found, row) for row in rows if (found := row.value("time"))]
    if len(known) < 2:
        return
    (low, first), (high, last) = (pick(known, key=lambda pair: pair[0].best) for pick in (min, max))
    if high.low > IN_STEP * low.high:
        apart = f"{100 * (high.best / low.best - 1):.0f} %"
        ends = f"{first.values['time']} on {first.run} and {last.values['time']} on {last.run}"
        sentence = f"ranks of {first.layout} take {ends}, {apart} apart: they did not wait for each other's gradients"
        lines = tuple(row.line for _, row in known)
        yield Finding("ranks_disagree", lines, f"ranks of one run, {apart} apart", "one time for all ranks", sentence)


def _rounded(rows: Sequence[Row]) -> Iterator[Finding]:
    """Three or more numbers of one size that all end in 00, where the column's others do not."""
    for name in ("time", "throughput", "compute", "comm", "bandwidth"):
        sizes: dict[int, dict[int, Number]] = {}
        for row in rows:
            if name in row.values:
                sizes.setdefault(row.size, {})[row.line] = row.values[name]
        shown = [cell for cells in sizes.values() for cell in cells.values()]
        round_ = sum(cell.digits.endswith("00") for cell in shown)
        if len(sizes) < 2 or min(cell.decimals for cell in shown) < 3:
            continue
        for size, cells in sizes.items():
            if len(cells) >= 3 and round_ == len(cells) == sum(cell.digits.endswith("00") for cell in cells.values()):
                texts = ", ".join(map(str, cells.values()))
                sentence = f"all {len(cells)} values of {name} at {size} GPUs end in 00 ({texts}); those of other sizes do not"
                yield Finding("values_rounded", tuple(cells), texts, "digits that vary", sentence)
