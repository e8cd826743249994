"""Someone else's table of results: what in it does not add up, what was checked and holds, what could not be checked."""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.analysis.audit.cells import STEPS, Interval, print_like
from hpcddp.analysis.audit.claims import Claims, check_claims
from hpcddp.analysis.audit.findings import Finding, by_weight, to_text
from hpcddp.analysis.audit.groups import BASELINES, Average, Groups, Runs, batch_sizes, grouped, same_batch
from hpcddp.analysis.audit.table import AuditTable, Row, lines_of, read_tables
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.text import count, thousands

RANK = re.compile(r"rank[ _-]?\d+", re.IGNORECASE)
DISAGREE, IN_STEP = 1.2, 1.02
"""Slowest over fastest run of one configuration on one GPU type, and rank of one run that exchanges gradients in every step."""

SAME_WORK, SAME_RUN = 0.05, 0.01
"""Throughput and time of one run may count slightly different things (the last batch, evaluation); rates of it other steps."""

FLAT, MANY_GPUS = 1.25, 4.0
"""A rate that changes by less while the GPUs grow so many times is that of one GPU, or the GPUs do no more work."""

CACHES, NOISE, ERRORS = 0.03, 0.03, 2.5
"""A speedup may exceed the ratio of GPUs a little by caches, and by so many standard errors of runs with this noise."""


def check_rows(groups: Groups, rate_known: bool) -> Iterator[Finding]:
    """Everything but claims; `rate_known`: claims say whether rates are of one GPU or of all."""
    table = groups.table
    for average in groups.averages:
        yield from _average(average, table.metrics[0])
        yield from _pooled(average, groups)
    for row in table.measured:
        if len(groups.gpu_types[row.line]) > 1:
            types, where = " and ".join(groups.types_of([row])), row.node_list or row.gpu_type
            yield Finding(
                "gpu_types_mixed_in_row", (row.line,), row.gpu_type or "one type", types, f"{where} is {types} in one run"
            )
        yield from _steps(row)
        yield from _total(row, table)
    for runs in groups.runs.values():
        yield from _disagree(runs, groups)
    for rows in groups.series.values():
        works = _works(rows, table)
        yield from _work(works, table)
        yield from _batch_changed(rows)
        if not rate_known and not works and not table.is_each("throughput"):
            yield from _flat(rows)


def _average(average: Average, metric: str) -> Iterator[Finding]:
    """An average that is not that of its rows."""
    of, claim, right = average.of.values(metric), average.claim, average.of.mean(metric)
    if not right or right.overlaps(claim.interval):
        return
    above, below = claim.interval.low > max(each.high for each in of), claim.interval.high < min(each.low for each in of)
    kind, follows = "average_wrong", print_like(right.best, claim)
    what = f"is not the mean of its {len(of)} rows, {follows}"
    if above or below:
        ends = " to ".join(print_like(pick(each.best for each in of), claim) for pick in (min, max))
        kind, what = "average_outside_rows", f"is {'above' if above else 'below'} each of the {len(of)} rows it averages ({ends})"
    yield _of_average(kind, average, follows, f"the average {claim} of {average.of.rows[0].layout} {what}")


def _pooled(average: Average, groups: Groups) -> Iterator[Finding]:
    """An average over several GPU types."""
    rows = average.of.rows
    types = groups.types_of(rows)
    if len(types) < 2:
        return
    of_types = [Runs([row for row in rows if groups.gpu_types[row.line] == {kind}]) for kind in types]
    by_type = [print_like(mean.best, average.claim) for each in of_types if (mean := each.mean(groups.table.metrics[0]))]
    follows = f"{' and '.join(by_type)} by type" if len(by_type) > 1 else "no average of one type"
    over = f"{count(len(rows), 'row')} of {', '.join(types[:-1])} and {types[-1]} GPUs"
    yield _of_average("gpu_types_pooled", average, follows, f"the average of {rows[0].layout} is over {over}")


def _of_average(kind: str, average: Average, follows: str, sentence: str) -> Finding:
    lines = (*lines_of(average.of.rows), average.line)
    return Finding(kind, lines, str(average.claim), follows, sentence)


def _steps(row: Row) -> Iterator[Finding]:
    """Steps of an epoch are its samples over the global batch."""
    samples, steps, batch = row.count("samples"), row.count("steps"), batch_sizes(row)
    if samples and steps and batch and steps not in (math.ceil(samples / batch[1]), samples // batch[1]):
        right = thousands(math.ceil(samples / batch[1]))
        of = f"{row.batch} on {row.layout}" if row.batch else thousands(batch[1])
        sentence = f"{thousands(samples)} samples in batches of {of} are {right} steps, not {thousands(steps)}"
        yield Finding("steps_wrong", (row.line,), thousands(steps), right, sentence)


def _total(row: Row, table: AuditTable) -> Iterator[Finding]:
    """The rate of all GPUs beside that of one; rates of different work are further apart than any mistake."""
    rates = [(table.is_each(key), shown) for key, shown in row.numbers.items() if key.startswith("throughput")]
    if sorted(each for each, _ in rates) == [False, True]:
        total, of_one = (shown for _, shown in sorted(rates, key=operator.itemgetter(0)))
        off = total.interval.over(of_one.interval)
        if not off.overlaps(Interval(1 - SAME_RUN, 1 + SAME_RUN, 1)) and 1 / (2 * row.size) < off.best < 2 * row.size:
            right = print_like(of_one.value, total)
            sentence = f"{total} at {row.layout} is not {of_one} of one GPU times {count(row.size, 'GPU')}, which is {right}"
            yield Finding("total_wrong", (row.line,), str(total), right, sentence)


def _disagree(runs: Runs, groups: Groups) -> Iterator[Finding]:
    """Runs of one configuration on one GPU type; ranks of one run did not wait for each other."""
    metric = groups.table.metrics[0]
    known = [(row, found) for row in runs.rows if (found := row.value(metric)) and len(groups.gpu_types[row.line]) < 2]
    for of in grouped(known, lambda pair: groups.gpu_types[pair[0].line]).values():
        of.sort(key=lambda pair: pair[1].best)
        (first, low), (last, high) = of[0], of[-1]
        ranks = all(RANK.fullmatch(row.run or "") for row, _ in of)
        if high.low <= (IN_STEP if ranks else DISAGREE) * low.high:
            continue
        lines, ratio = lines_of(row for row, _ in of), high.best / low.best
        places = [(row, row.run if ranks else row.node_list) for row in (first, last)]
        ends = " to ".join(f"{row.numbers[metric]}{f' on {place}' if place else ''}" for row, place in places)
        if ranks:
            apart = f"{100 * (ratio - 1):.0f} %"
            sentence = f"ranks of {first.layout} take {ends}, {apart} apart: they did not wait for each other's gradients"
            yield Finding("ranks_disagree", lines, f"ranks of one run, {apart} apart", "one time for all ranks", sentence)
        else:
            kind = "".join(f" on {each}" for each in groups.gpu_types[first.line])
            sentence = f"{len(of)} runs of {first.layout}{kind} differ by up to {ratio:.2f} times: {ends}"
            yield Finding("runs_disagree", lines, "runs of one configuration", f"{ratio:.2f} times apart", sentence)


def _works(rows: Sequence[Row], table: AuditTable) -> list[tuple[Row, Interval]]:
    """Throughput times time of each row, in a table with one of both."""
    if [key for key in table.metrics if not table.is_each(key)] != ["time", "throughput"]:
        return []
    return [(row, rate.product(time)) for row in rows if (rate := row.value("throughput")) and (time := row.value("time"))]


def _work(known: Sequence[tuple[Row, Interval]], table: AuditTable) -> Iterator[Finding]:
    """That of the samples where a column has them; else the same in all rows, or in proportion to GPUs or the global batch."""
    by_gpus = [float(row.size) for row, _ in known]
    samples = [float(row.count("samples") or 0) for row, _ in known]
    if known and all(samples) and not table.columns["time"].says(STEPS):
        wrong, of = _astray(known, samples, 1.0), ""
    elif len(known) < 3:
        return
    else:
        shares = [[1.0] * len(known)]
        if not table.columns["time"].says("epochs?"):
            shares += [by_gpus, [1 / each for each in by_gpus], [row.size * (row.batch or 1.0) for row, _ in known]]
        wrong, of = min((_astray(known, each) for each in shares), key=len), "the work of the other rows"
        if len(wrong) * 2 >= len(known):
            yield from _growing_epoch(known) if len(shares) == 1 and not _astray(known, by_gpus) else ()
            return
    if wrong:
        (row, done, usual), lines = wrong[0], lines_of(row for row, *_ in wrong)
        time, rate = row.numbers["time"], row.numbers["throughput"]
        more = f" (and {count(len(wrong) - 1, 'more row')})" if len(wrong) > 1 else ""
        of = of or f"the {thousands(usual)} samples"
        sentence = f"throughput {rate} times {time} at {row.layout} is {quantity(done / usual)} times {of}{more}"
        yield Finding("throughput_wrong", lines, str(rate), print_like(usual / time.value, rate), sentence)


def _astray(known: Sequence[tuple[Row, Interval]], shares: Sequence[float], one: float = 0) -> list[tuple[Row, float, float]]:
    """(row, its work, the work it should be) of those off by more than SAME_WORK; a share of 1 is `one`, else the usual work."""
    each = [(row, work, work.scaled(1 / share), share) for (row, work), share in zip(known, shares, strict=True)]
    one = one or statistics.median(of_one.best for *_, of_one, _ in each)
    band = Interval(one * (1 - SAME_WORK), one * (1 + SAME_WORK), one)
    return [(row, work.best, one * share) for row, work, of_one, share in each if not of_one.overlaps(band)]


def _growing_epoch(known: Sequence[tuple[Row, Interval]]) -> Iterator[Finding]:
    """An epoch whose samples grow with the GPUs."""
    (first, work), (last, work_there) = known[0], known[-1]
    by_time = f"{first.numbers['time'].value / last.numbers['time'].value:.2f}"
    by_rate = f"{last.numbers['throughput'].value / first.numbers['throughput'].value:.2f}"
    fast = f"{last.layout} is {by_time} times as fast as {first.layout} by time and {by_rate} times by rate"
    both = f"{quantity(work.best)} samples at {first.layout} and {quantity(work_there.best)} at {last.layout}"
    yield Finding("throughput_wrong", lines_of(row for row, _ in known), by_rate, by_time, f"{fast}: an epoch has {both}")


def _flat(rows: Sequence[Row]) -> Iterator[Finding]:
    """A rate that stays the same with many times the GPUs, and nothing that tells of how many it is."""
    known = sorted((row for row in rows if "throughput" in row.numbers), key=lambda row: row.size)
    first, last = (known[at].numbers["throughput"] if known else None for at in (0, -1))
    times = known[-1].size / known[0].size if known else 0
    if first and last and times >= MANY_GPUS and max(first.value, last.value) <= FLAT * min(first.value, last.value):
        ends = f"throughput is {first} at {known[0].layout} and {last} at {known[-1].layout}"
        sentence = f"{ends}: it is of one GPU, or {quantity(times)} times the GPUs do no more work"
        follows = f"{print_like(last.value * known[-1].size, last)} on all GPUs"
        yield Finding("rate_of_one_gpu", lines_of(known), str(last), follows, sentence)


def _batch_changed(rows: Sequence[Row]) -> Iterator[Finding]:
    """Neither the batch per GPU nor the global batch is the same at every size."""
    known = [(row, batch) for row in rows if (batch := batch_sizes(row)) and len(row.numbers) > 1]
    others = [(row, batch) for row, batch in known if not same_batch(row, known[0][0])]
    if others:
        (first, (per_gpu, total)), (other, (per_gpu_there, total_there)) = known[0], others[0]
        change = f"{per_gpu:g} at {first.layout} and {per_gpu_there:g} at {other.layout}"
        in_all = f"(global batch {thousands(total)} and {thousands(total_there)})"
        sentence = f"the batch per GPU is {change} {in_all}. These rows differ by more than their GPUs"
        follows = f"{per_gpu:g} per GPU, or {thousands(total)} in all"
        yield Finding("batch_changed", lines_of(row for row, _ in others), f"{per_gpu_there:g} per GPU", follows, sentence)


def check_superlinear(groups: Groups) -> Iterator[Finding]:
    """Rows faster than the ratio of GPUs, beyond the digits shown, caches and noise."""
    for rows in groups.series.values():
        base = groups.baseline(rows[0], BASELINES[2])
        sizes = dict.fromkeys(groups.runs[row.config] for row in rows if row.config != base.rows[0].config)
        ways = [(size, metric) for size in sizes for metric in reversed(groups.table.metrics)]
        found = {each.lines[-1]: each for size, metric in ways for each in _too_fast(size, base, groups, metric)}
        yield from found.values()


def _too_fast(size: Runs, base: Runs, groups: Groups, metric: str) -> Iterator[Finding]:
    """Of a size; else of each of its nodes by itself."""
    first = base.rows[0]
    places = [(size, base)] if len(groups.types_of([*size.rows, *base.rows])) < 2 else []  # other GPUs are another finding
    on_nodes = {row: [each for each in base.rows if each.node_list == row.node_list] for row in size.rows if row.node_list}
    places += [(Runs([row]), Runs(there)) for row, there in on_nodes.items()]
    for after, before in places:
        row, then, now = after.rows[0], before.mean(metric), after.mean(metric)
        if not then or not now or not same_batch(row, first):
            continue  # so is another batch
        found, ratio = then.over(now) if metric.startswith("time") else now.over(then), row.size / first.size
        if found.low > ratio * _most(len(before.values(metric)), len(after.values(metric))):
            where = f" on {row.node_list}" if len(after.rows) == 1 and row.node_list else ""
            what = f"{row.layout}{where} is {found.best:.2f} times as fast as {first.layout} with {ratio:g} times the GPUs"
            lines, sentence = lines_of([*before.rows, *after.rows]), f"{what} ({100 * found.best / ratio:.0f} %)"
            yield Finding("superlinear", lines, f"{found.best:.2f}", f"at most {ratio:g}", sentence)
            if after is size:
                return


def _most(before: int, after: int) -> float:
    """What a speedup may be over the ratio of GPUs, by the number of runs on both sides."""
    return 1 + CACHES + ERRORS * NOISE * math.sqrt(1 / before + 1 / after)


def above_linear(claims: Claims, reported: set[int]) -> Iterator[Finding | str]:
    """Claims above linear that times and rates do not show: a finding, or a remark where caches and noise may explain it."""
    efficiency = claims.column.meaning == "efficiency"
    for row in claims.rows:
        shown, ratio = claims.shown(row), claims.groups.ratio(row, claims.basis.baseline) or 1.0
        linear = 1.0 if efficiency else ratio
        measured = any(key.split()[0] in ("time", "throughput") for key in row.numbers)
        if ratio <= 1 or row.line in reported or row in claims.astray or (measured and not claims.checked):
            continue  # a number that does not follow is another finding
        what = f"{claims.column.meaning} {shown} at {row.layout} is above linear"
        if shown.interval.low > linear * _most(1, 1):
            yield Finding("superlinear", (row.line,), str(shown), f"at most {linear:g}", f"{what}, which is {linear:g}")
        elif shown.interval.low > linear:
            yield f"line {row.line}: {what}, within caches and noise"


SCHEMA = 1
"""Of `hpcddp audit --format json`."""


@dataclass(frozen=True)
class Audit:
    """What an audit says."""

    table: AuditTable
    findings: tuple[Finding, ...]
    holds: Mapping[str, int]
    """Kind of number -> how many were checked and add up."""
    unchecked: Mapping[str, int]
    """Kind of number -> how many nothing in the table can check."""
    remarks: tuple[str, ...]

    @property
    def text(self) -> str:
        return to_text(self.table.name, self.findings, self.holds, self.unchecked, len(self.table.rows))

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "file": str(self.table.file),
            "rows": len(self.table.rows),
            "findings": [each.plain for each in self.findings],
            "holds": dict(self.holds),
            "unchecked": dict(self.unchecked),
            "remarks": list(self.remarks),
        }


def audits(file: Path) -> list[Audit]:
    """Checks each table in `file`; UsageError where none can be read."""
    return [_audit(table) for table in read_tables(file)]


def _audit(table: AuditTable) -> Audit:
    groups = Groups(table)
    claims = [found for each in table.columns.values() if each.kind == "claim" and (found := Claims(groups, each)).rows]
    rate_known = any(len(each.fitting) > 1 and each.basis.metric.startswith("throughput") for each in claims)
    fast = list(check_superlinear(groups))
    reported = {line for each in fast for line in each.lines}
    above = [said for each in claims for said in above_linear(each, reported)]
    findings = [*check_rows(groups, rate_known), *fast, *(said for said in above if isinstance(said, Finding))]
    findings += [finding for each in claims for finding in check_claims(each)]
    remarks = [*table.remarks, *(said for said in above if isinstance(said, str))]
    wrong = sum(each.kind in ("average_wrong", "average_outside_rows") for each in findings)
    tallies = [("averages", sum(row.summary for row in table.rows), len(groups.averages), wrong)]
    tallies += [(f"{each.column.meaning} values", len(each.rows), len(each.checked), len(each.missed)) for each in claims]
    holds, unchecked = Counter[str](), Counter[str]()
    for name, printed, checked, missed in tallies:
        holds[name] += checked - missed
        unchecked[name] += printed - checked
    return Audit(table, tuple(by_weight(findings)), +holds, +unchecked, tuple(remarks))
