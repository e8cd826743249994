"""What in the rows of a table contradicts itself: averages, runs, work, parts, batches, GPU types, speedups beyond the GPUs."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence

from hpcddp.analysis.audit.cells import Interval, print_like
from hpcddp.analysis.audit.claims import Claims
from hpcddp.analysis.audit.columns import STEPS
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import BASELINES, Average, Groups, Runs, batches, same_batch
from hpcddp.analysis.audit.table import AuditTable, Row
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.text import count

DISAGREE = 1.2
"""Slowest over fastest run of one configuration on one GPU type: more than noise."""

RANK = re.compile(r"rank[ _-]?\d+", re.IGNORECASE)
IN_STEP = 1.02
"""Slowest over fastest rank of one run that exchanges gradients in every step: more than how they start and end."""

SAME_WORK = 0.05
"""Throughput and time of one run may count slightly different things: the last batch, evaluation."""

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
        yield from _mixed_types(row, groups)
        yield from _steps(row)
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
    lines = (*_lines(average.of.rows), average.line)
    return Finding(kind, lines, str(average.claim), follows, sentence)


def _mixed_types(row: Row, groups: Groups) -> Iterator[Finding]:
    """One run on several GPU types."""
    types = groups.types_of([row])
    if len(types) > 1:
        named = " and ".join(types)
        sentence = f"{row.node_list or row.gpu_type} is {named} in one run"
        yield Finding("gpu_types_mixed_in_row", (row.line,), row.gpu_type or "one type", named, sentence)


def _steps(row: Row) -> Iterator[Finding]:
    """Steps of an epoch are its samples over the global batch."""
    samples, steps, batch = row.count("samples"), row.count("steps"), batches(row)
    if samples and steps and batch and steps not in (math.ceil(samples / batch[1]), samples // batch[1]):
        right = f"{math.ceil(samples / batch[1]):,}"
        of = f"{row.batch} on {row.layout}" if row.batch else f"{batch[1]:,}"
        sentence = f"{samples:,} samples in batches of {of} are {right} steps, not {steps:,}"
        yield Finding("steps_wrong", (row.line,), f"{steps:,}", right, sentence)


def _disagree(runs: Runs, groups: Groups) -> Iterator[Finding]:
    """Runs of one configuration on one GPU type; ranks of one run did not wait for each other."""
    metric = groups.table.metrics[0]
    for known in groups.comparable(runs):
        (low, first), (high, last) = known[0], known[-1]
        ranks = all(RANK.fullmatch(row.run or "") for _, row in known)
        if high.low <= (IN_STEP if ranks else DISAGREE) * low.high:
            continue
        places = [row.run if ranks else row.node_list for row in (first, last)]
        ends = [f"{row.numbers[metric]}{f' on {on}' if on else ''}" for row, on in zip((first, last), places, strict=True)]
        lines, ratio = tuple(row.line for _, row in known), high.best / low.best
        if ranks:
            apart = f"{100 * (ratio - 1):.0f} %"
            take = f"ranks of {first.layout} take {' and '.join(ends)}, {apart} apart"
            sentence = f"{take}: they did not wait for each other's gradients"
            yield Finding("ranks_disagree", lines, f"ranks of one run, {apart} apart", "one time for all ranks", sentence)
        else:
            kind = "".join(f" on {each}" for each in groups.gpu_types[first.line])
            sentence = f"{len(known)} runs of {first.layout}{kind} differ by up to {ratio:.2f} times: {' to '.join(ends)}"
            yield Finding("runs_disagree", lines, "runs of one configuration", f"{ratio:.2f} times apart", sentence)


def _works(rows: Sequence[Row], table: AuditTable) -> list[tuple[Row, Interval]]:
    """Throughput times time of each row, in a table with one of both."""
    if [key for key in table.metrics if not table.is_each(key)] != ["time", "throughput"]:
        return []
    return [(row, rate.product(time)) for row in rows if (rate := row.value("throughput")) and (time := row.value("time"))]


def _work(known: Sequence[tuple[Row, Interval]], table: AuditTable) -> Iterator[Finding]:
    """It is the samples that are told; else the same in all rows, or in proportion to GPUs or to the global batch."""
    by_gpus = [float(row.size) for row, _ in known]
    told = [float(_samples_of(row, table)) for row, _ in known]
    if known and all(told):
        wrong, of = _astray(known, told, 1.0), f"the {told[0]:,.0f} samples"
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
        (row, done, usual), lines = wrong[0], _lines(row for row, *_ in wrong)
        time, rate = row.numbers["time"], row.numbers["throughput"]
        more = f" (and {count(len(wrong) - 1, 'more row')})" if len(wrong) > 1 else ""
        sentence = f"throughput {rate} times {time} at {row.layout} is {quantity(done / usual)} times {of}{more}"
        yield Finding("throughput_wrong", lines, str(rate), print_like(usual / time.value, rate), sentence)


def _samples_of(row: Row, table: AuditTable) -> int:
    """Those that the row's time is for, of a step or of an epoch; 0 where the table does not tell."""
    samples, batch = row.count("samples") or 0, batches(row)  # without samples, tokens of a sample are not told
    return samples and (batch[1] if batch else 0) if table.columns["time"].says(STEPS) else samples


def _astray(known: Sequence[tuple[Row, Interval]], shares: Sequence[float], one: float = 0) -> list[tuple[Row, float, float]]:
    """(row, its work, the work it should be) of those off by more than SAME_WORK; a share of 1 is `one`, else the usual work."""
    each = [(row, work, work.scaled(1 / share), share) for (row, work), share in zip(known, shares, strict=True)]
    one = one or statistics.median(of_one.best for *_, of_one, _ in each)
    band = Interval(one * (1 - SAME_WORK), one * (1 + SAME_WORK), one)
    return [(row, work.best, one * share) for row, work, of_one, share in each if not of_one.overlaps(band)]


def _growing_epoch(known: Sequence[tuple[Row, Interval]]) -> Iterator[Finding]:
    """An epoch whose samples grow with the GPUs."""
    (first, work), (last, work_there) = known[0], known[-1]
    if first.size != last.size:
        by_time = f"{first.numbers['time'].value / last.numbers['time'].value:.2f}"
        by_rate = f"{last.numbers['throughput'].value / first.numbers['throughput'].value:.2f}"
        fast = f"{last.layout} is {by_time} times as fast as {first.layout} by time and {by_rate} times by rate"
        work_of_both = f"{quantity(work.best)} samples at {first.layout} and {quantity(work_there.best)} at {last.layout}"
        lines = _lines(row for row, _ in known)
        yield Finding("throughput_wrong", lines, by_rate, by_time, f"{fast}: an epoch has {work_of_both}")


def _flat(rows: Sequence[Row]) -> Iterator[Finding]:
    """A rate that stays the same with many times the GPUs, and nothing that tells of how many it is."""
    known = sorted((row for row in rows if "throughput" in row.numbers), key=lambda row: row.size)
    if not known or known[-1].size < MANY_GPUS * known[0].size:
        return
    first, last = known[0].numbers["throughput"], known[-1].numbers["throughput"]
    if max(first.value, last.value) <= FLAT * min(first.value, last.value):
        ends = f"throughput is {first} at {known[0].layout} and {last} at {known[-1].layout}"
        sentence = f"{ends}: it is of one GPU, or {quantity(known[-1].size / known[0].size)} times the GPUs do no more work"
        follows = f"{print_like(last.value * known[-1].size, last)} on all GPUs"
        yield Finding("rate_of_one_gpu", _lines(known), str(last), follows, sentence)


def _batch_changed(rows: Sequence[Row]) -> Iterator[Finding]:
    """Neither the batch per GPU nor the global batch is the same at every size."""
    known = [(row, batch) for row in rows if (batch := batches(row)) and len(row.numbers) > 1]
    others = [(row, batch) for row, batch in known if not same_batch(row, known[0][0])]
    if others:
        (first, (per_gpu, total)), (other, (per_gpu_there, total_there)) = known[0], others[0]
        change = f"{per_gpu:g} at {first.layout} and {per_gpu_there:g} at {other.layout}"
        in_all = f"(global batch {total:,} and {total_there:,})"
        sentence = f"the batch per GPU is {change} {in_all}, so that these rows differ by more than their GPUs"
        follows = f"{per_gpu:g} per GPU, or {total:,} in all"
        yield Finding("batch_changed", _lines(row for row, _ in others), f"{per_gpu_there:g} per GPU", follows, sentence)


def check_superlinear(groups: Groups, claims: Sequence[Claims]) -> Iterator[Finding]:
    """More than the ratio of GPUs, beyond the digits shown, caches and noise: by what was measured, else as claimed."""
    reported = set[int]()
    for rows in groups.series.values():
        base = groups.baseline(rows[0], BASELINES[2])
        for size in dict.fromkeys(groups.runs[row.config] for row in rows if row.config != base.rows[0].config):
            for metric in groups.table.metrics:
                found = [each for each in _too_fast(size, base, groups, metric) if each.lines[-1] not in reported]
                yield from found
                reported |= {each.lines[-1] for each in found}
    for each in claims:
        yield from (found for found in _claimed_too_fast(each) if found.lines[0] not in reported)


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
            lines, sentence = _lines([*before.rows, *after.rows]), f"{what} ({100 * found.best / ratio:.0f} %)"
            yield Finding("superlinear", lines, f"{found.best:.2f}", f"at most {ratio:g}", sentence)
            if after is size:
                return


def _most(before: int, after: int) -> float:
    """What a speedup may be over the ratio of GPUs, by the number of runs on both sides."""
    return 1 + CACHES + ERRORS * NOISE * math.sqrt(1 / before + 1 / after)


def _claimed_too_fast(claims: Claims) -> Iterator[Finding]:
    """Where times and rates do not show it; a number that does not follow is another finding."""
    of_one = {row.line for row in claims.rows if claims.shown(row).value != 1}
    for row in claims.rows:
        measured = any(key.split()[0] in ("time", "throughput") for key in row.numbers)
        if row in claims.missed or (measured and not claims.checked):
            continue
        base, shown = claims.groups.baseline(row, BASELINES[2]).rows, claims.shown(row)
        ratio = row.size / base[0].size if base and base[0].line not in of_one else row.gpus
        ratio = claims.groups.ratio(row, claims.column.baseline) if claims.column.baseline else ratio
        efficiency = claims.column.meaning == "efficiency"
        linear = 1.0 if efficiency else ratio
        if linear and shown.interval.low > linear * _most(1, 1) and (efficiency or linear > 1):
            why = "more than the GPUs can give" if efficiency else f"{linear:g} is linear"
            sentence = f"{claims.column.meaning} {shown} is claimed at {row.layout}: {why}"
            follows = "at most 1 (100 %)" if efficiency else f"at most {linear:g}"
            yield Finding("superlinear", (row.line,), str(shown), follows, sentence)


def above_linear(claims: Claims, reported: set[int]) -> Iterator[str]:
    """Remarks on claims above linear that caches and noise may explain; not those of lines that a finding names."""
    for row in claims.fitting:
        word, shown = claims.column.meaning, claims.shown(row)
        limit = 1.0 if word == "efficiency" else claims.groups.ratio(row, claims.basis.baseline)
        if limit and shown.interval.low > limit and row.line not in reported:
            yield f"line {row.line}: {word} {shown} at {row.layout} is above linear, within caches and noise"


def _lines(rows: Iterable[Row]) -> tuple[int, ...]:
    return tuple(row.line for row in rows)
