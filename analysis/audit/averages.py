"""Are averages those of their rows, and of rows that may be averaged?"""

from __future__ import annotations

from collections.abc import Iterator

from hpcddp.analysis.audit.cells import Interval, print_like
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Average, Groups, distinct, statistic, values
from hpcddp.core.text import count


def check_averages(groups: Groups) -> Iterator[Finding]:
    """Averages that are not those of their rows, pool what may not be averaged, or name another number of rows."""
    metric = groups.table.metric
    for each in groups.averages:
        yield from _value(each, metric)
        yield from _pooled(each, groups)


def _value(average: Average, metric: str) -> Iterator[Finding]:
    of = values(average.rows, metric)
    right = statistic(average.statistic, of)
    if right.overlaps(average.claim.interval):
        return
    claim, where, follows = average.claim, average.rows[0].layout, print_like(right.best, average.claim)
    lowest, highest = statistic("min", of), statistic("max", of)
    what = f"the {'average' if average.statistic == 'mean' else 'median'} {claim} of {where}"
    if claim.interval.low > highest.high or claim.interval.high < lowest.low:
        side = "above" if claim.interval.low > highest.high else "below"
        ends = f"{print_like(lowest.best, claim)} to {print_like(highest.best, claim)}"
        rows = f"each of the {len(of)} rows it averages ({ends})" if len(of) > 1 else f"the one row it averages ({ends})"
        yield _finding("average_outside_rows", average, follows, f"{what} is {side} {rows}")
        return
    fits = _would_fit(average, metric)
    if fits == "the median":
        yield _finding(
            "average_is_median", average, follows, f"{what} is the median of its {len(of)} rows; their mean is {follows}"
        )
        return
    hint = f"; {fits} would fit" if fits else ""
    yield _finding(
        "average_wrong", average, follows, f"{what} is not the {average.statistic} of its {len(of)} rows, {follows}{hint}"
    )


def _would_fit(average: Average, metric: str) -> str:
    """Another statistic of the rows that gives what is printed; nothing where none does."""
    of, claim = values(average.rows, metric), average.claim.interval
    best, worst = ("min", "max") if metric.startswith("time") else ("max", "min")
    for name, words in (("median", "the median"), ("mean", "the mean"), (best, "the fastest"), (worst, "the slowest")):
        if name != average.statistic and statistic(name, of).overlaps(claim):
            return words
    if len(of) > 2:
        for row in average.rows:
            others = values((other for other in average.rows if other is not row), metric)
            if row.value(metric) is not None and statistic("mean", others).overlaps(claim):
                return f"the mean without line {row.line}"
    return ""


def _pooled(average: Average, groups: Groups) -> Iterator[Finding]:
    types = sorted(distinct(kind for row in average.rows for kind in groups.hardware[row.line]))
    if len(types) < 2:
        return
    by_type = [statistic("mean", of) for kind in types if (of := _of_type(average, groups, kind))]
    apart = " and ".join(print_like(each.best, average.claim) for each in by_type)
    follows = f"{apart} by type" if len(by_type) > 1 else "no average of one type"
    sentence = f"the average of {average.rows[0].layout} is over {count(len(average.rows), 'row')} of {_words(types)}"
    yield _finding("gpu_types_pooled", average, follows, sentence)


def _of_type(average: Average, groups: Groups, kind: str) -> list[Interval]:
    return values([row for row in average.rows if groups.hardware[row.line] == {kind}], groups.table.metric)


def _words(types: list[str]) -> str:
    return f"{', '.join(types[:-1])} and {types[-1]} GPUs"


def _finding(kind: str, average: Average, follows: str, sentence: str, claimed: str | None = None) -> Finding:
    lines = tuple(sorted({*average.lines, *(row.line for row in average.rows)}))
    return Finding(kind, lines, claimed or str(average.claim), follows, sentence)
