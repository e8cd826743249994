"""Can the runs bear what is said of them: do repetitions agree, is the effect larger than the spread, is it possible at all?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hpcddp.analysis.audit.basis import Ratios
from hpcddp.analysis.audit.cells import Interval, alike
from hpcddp.analysis.audit.claims import Claims
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, distinct, statistic, value, values
from hpcddp.analysis.audit.table import Config, Row

DISAGREE = 1.2
"""Slowest over fastest run of one configuration on one GPU type: more than noise."""

CACHES = 0.03
NOISE = 0.03
"""What a speedup may be above the ratio of GPUs: a little from caches, and three standard errors of runs with this noise."""

REPEATED = 3
"""Times equal to every digit, of different configurations: not by chance where four digits or more are shown."""


def check_runs(groups: Groups) -> Iterator[Finding]:
    for rows in groups.runs.values():
        yield from _disagree(rows, groups)
        yield from _listed_twice(rows)
    yield from _repeated_times(groups)
    yield from _rounded(groups.table.measured)
    yield from _superlinear(groups)


def check_effects(claims: Claims) -> Iterator[Finding]:
    """A speedup whose slowest run is slower than the baseline's fastest, or that is more than the GPUs can give."""
    yield from _superlinear_claims(claims)
    groups = claims.ratios.groups
    told = set[Config]()
    for claim in claims.claims if claims.word == "speedup" else ():
        basis = claims.basis(claim)
        base = claims.ratios.baseline(claim.row, basis.baseline)
        mine = [row for config, rows in groups.runs.items() if _alike(config, claim.row.config) for row in rows]
        before, after = values(base, basis.metric), values(mine, basis.metric)
        if claim.can_be.low <= 1 or len(before) < 2 or len(after) < 2 or mine[0].size == base[0].size or claim.row.config in told:
            continue
        told.add(claim.row.config)
        if basis.weak:
            before = [each.scaled(mine[0].size / base[0].size) for each in before]
        apart, worst, best = _apart(before, after, basis.metric)
        if not apart:
            shown = next(row.values[basis.metric] for row in mine if basis.metric in row.values)
            slow, fast = (f"{row.layout} ({alike(at, shown)})" for row, at in ((claim.row, worst), (base[0], best)))
            runs = f"a run of {slow} is slower than one of {fast}"
            sentence = f"speedup {claim.shown} is claimed at {claim.row.layout}, but {runs}: the spread is larger than the effect"
            lines = tuple(row.line for row in (*base, *mine))
            yield Finding("spread_exceeds_effect", lines, str(claim.shown), "ranges that overlap", sentence)


def _superlinear_claims(claims: Claims) -> Iterator[Finding]:
    """Speedups above the ratio of GPUs in a table without the times that would show it."""
    for claim in claims.claims if claims.word == "speedup" else ():
        base = claims.ratios.baseline(claim.row, "the smallest size")
        ratio = claim.row.size / base[0].size if base else None
        shown = any(value(claim.row, name) for name in ("time", "throughput", "average"))
        if ratio and not shown and not claims.column.baseline and claim.can_be.low > ratio * _most(1, 1):
            sentence = f"speedup {claim.shown} is claimed at {claim.row.layout}, {ratio:g} times the GPUs of {base[0].layout}"
            yield Finding("superlinear", (claim.row.line,), str(claim.shown), f"at most {ratio:g}", sentence)


def _most(before: int, after: int) -> float:
    """What a speedup may be over the ratio of GPUs, by the number of runs on both sides."""
    return 1 + CACHES + 3 * NOISE * math.sqrt(1 / before + 1 / after)


def _alike(config: Config, said: Config) -> bool:
    """A summary need not say all of a configuration."""
    return all(mine == theirs or theirs is None for mine, theirs in zip(config, said, strict=True))


def _apart(before: Sequence[Interval], after: Sequence[Interval], metric: str) -> tuple[bool, float, float]:
    """(whether every run after is faster than every run before, the slowest after, the fastest before)"""
    if metric == "time":
        worst, best = statistic("max", after), statistic("min", before)
        return worst.low <= best.high, worst.best, best.best
    worst, best = statistic("min", after), statistic("max", before)
    return worst.high >= best.low, worst.best, best.best


def comparable(rows: Sequence[Row], groups: Groups) -> Iterator[list[tuple[Interval, Row]]]:
    """Of the runs of one configuration: what those on one GPU type measured, where there are several."""
    for hardware in dict.fromkeys(groups.hardware[row.line] for row in rows):
        same = [row for row in rows if groups.hardware[row.line] == hardware]
        known = [(found, row) for row in same if (found := value(row, groups.table.metric))]
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


def _listed_twice(rows: Sequence[Row]) -> Iterator[Finding]:
    first: dict[tuple[str | None, ...], Row] = {}
    for row in rows:
        if row.run is None:
            continue
        key = (row.run, row.node_list, row.gpu_type)
        if key in first:
            sentence = f"run {row.run} of {row.layout} is listed in line {first[key].line} and in line {row.line}"
            yield Finding("run_repeated", (first[key].line, row.line), f"run {row.run}", "two rows", sentence)
        first.setdefault(key, row)


def _repeated_times(groups: Groups) -> Iterator[Finding]:
    metric = groups.table.metric
    seen: dict[tuple[str, ...], Row] = {}
    for rows in groups.runs.values():
        shown = [row.values[metric] for row in rows if metric in row.values]
        texts = tuple(sorted(each.text for each in shown))
        if len({each.text for each in shown if len(each.digits) >= 4}) < REPEATED:
            continue
        if texts in seen:
            other = seen[texts]
            same = f"the same {metric}s, to every digit, as those of {other.layout} from line {other.line} on"
            sentence = f"the {len(texts)} runs of {rows[0].layout} have {same}"
            yield Finding("times_repeated", tuple(row.line for row in rows), ", ".join(texts[:3]), "runs of their own", sentence)
        seen.setdefault(texts, rows[0])


def _rounded(rows: Sequence[Row]) -> Iterator[Finding]:
    """Three or more numbers of one size that all end in 00, where the column's others do not."""
    for size in sorted({row.size for row in rows}):
        for name in ("time", "throughput", "compute", "comm", "bandwidth"):
            cells = {row.line: row.values[name] for row in rows if name in row.values and row.size == size}
            others = [row.values[name] for row in rows if name in row.values and row.size != size]
            if len(cells) < 3 or not others or min(cell.decimals for cell in (*cells.values(), *others)) < 3:
                continue
            if all(cell.digits.endswith("00") for cell in cells.values()) and not any(c.digits.endswith("00") for c in others):
                texts = ", ".join(map(str, cells.values()))
                sentence = f"all {len(cells)} values of {name} at {size} GPUs end in 00 ({texts}); those of other sizes do not"
                yield Finding("values_rounded", tuple(cells), texts, "digits that vary", sentence)


def _superlinear(groups: Groups) -> Iterator[Finding]:
    """Of each size, and of each node alone: more than the ratio of GPUs, beyond the digits shown, caches and noise."""
    ratios = Ratios(groups)
    for config, rows in groups.runs.items():
        base = ratios.baseline(rows[0], "the smallest size")
        found = _too_fast(rows, base, groups) if base and base[0].config != config else None
        if found:
            yield found
            continue
        for row in rows if base and base[0].config != config else ():
            same = [other for other in base if other.node_list and other.node_list == row.node_list]
            if same and (found := _too_fast([row], same, groups)):
                yield found


def _too_fast(rows: Sequence[Row], base: Sequence[Row], groups: Groups) -> Finding | None:
    hardware = distinct(kind for row in (*rows, *base) for kind in groups.hardware[row.line])
    if len(hardware) > 1 and not (len(rows) == 1 and rows[0].node_list == base[0].node_list):
        return None  # different GPUs: another finding
    ratio = rows[0].size / base[0].size
    for metric in ("time", "throughput"):
        before, after = values(base, metric), values(rows, metric)
        if not before or not after:
            continue
        then, now = statistic("mean", before), statistic("mean", after)
        speedup = then.over(now) if metric == "time" else now.over(then)
        if speedup.low > ratio * _most(len(before), len(after)):
            where = f" on {rows[0].node_list}" if len(rows) == 1 and rows[0].node_list else ""
            sentence = (
                f"{rows[0].layout}{where} is {speedup.best:.2f} times as fast as {base[0].layout} with {ratio:g} times the GPUs"
            )
            lines = tuple(row.line for row in (*base, *rows))
            return Finding("superlinear", lines, f"{speedup.best:.2f}", f"at most {ratio:g}", sentence)
    return None
