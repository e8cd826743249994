"""Do rates of one GPU, rates of all GPUs, TFLOP/s and MFU describe the same run?"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from hpcddp.analysis.audit.cells import Interval, Number, print_like
from hpcddp.analysis.audit.derived import is_flat
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, value
from hpcddp.analysis.audit.rates import work_of
from hpcddp.analysis.audit.row import RATES, Row
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.text import count

SAME_RUN = 0.01
"""Rates of one GPU and of all may be means of slightly different steps."""

SAME_PEAK = 0.02
"""The same for MFU and what it follows from."""

MANY_GPUS = 4.0
"""A rate of all GPUs that stays the same with so many times the GPUs is suspicious."""

ENOUGH = 3
"""So many rows can tell which of them is wrong."""

WHAT = {"tflops_per_gpu": "TFLOP/s of one GPU", "throughput": "throughput per GPU"}
TOTALS = {"throughput_per_gpu": "throughput", "tflops_per_gpu": "tflops"}


def check_totals(groups: Groups) -> Iterator[Finding]:
    """Totals that are not rate times GPUs, MFU that does not follow from FLOP/s, rates that may be of one GPU."""
    comparable = _same_work(groups)
    for row in groups.table.measured:
        yield from _total(row) if comparable else ()
        yield from _above_peak(row)
    for known, rate in _of_one_peak(groups):
        yield from _one_peak(known, rate)
    for rows in groups.by_series().values():
        yield from _flat([row for row in rows if row.summary is None])


def totals_checked(groups: Groups) -> int:
    """How many rates of all GPUs stand beside that of one."""
    return _same_work(groups) * sum(
        _beside(row, one, all_) is not None for row in groups.table.measured for one, all_ in TOTALS.items()
    )


def _same_work(groups: Groups) -> bool:
    """Whether the rate of one GPU and that of all count the same, as far as their headers tell."""
    one, all_ = (work_of(groups.table.headers.get(name, "")) for name in ("throughput_per_gpu", "throughput"))
    return one == all_ or not one or not all_


def mfu_checked(groups: Groups) -> set[int]:
    """The lines whose MFU the other rows can check."""
    return {row.line for known, _ in _of_one_peak(groups) for row, _ in known}


def _of_one_peak(groups: Groups) -> Iterator[tuple[list[tuple[Row, Interval]], str]]:
    """(rows and their ratio of a rate to MFU, the rate): TFLOP/s by GPU type and precision, throughput by what was trained."""
    keys: dict[str, Callable[[Row], object]] = {
        "tflops_per_gpu": lambda row: row.configuration,
        "throughput": lambda row: row.subject,
    }
    for rate, key in keys.items():
        found: dict[object, list[tuple[Row, Interval]]] = {}
        for row in groups.table.measured:
            if ratio := _ratio(row, rate):
                found.setdefault((groups.hardware[row.line], key(row)), []).append((row, ratio))
        yield from ((known, rate) for known in found.values() if len(known) >= ENOUGH)


def _total(row: Row) -> Iterator[Finding]:
    for one, all_ in TOTALS.items():
        beside = _beside(row, one, all_)
        if beside is None or row.gpus is None:
            continue
        per_gpu, total = beside
        follows = per_gpu.interval.scaled(row.gpus)
        if not _widened(follows, SAME_RUN).overlaps(total.interval):
            right = print_like(follows.best, total)
            sentence = f"{total} at {row.layout} is not {per_gpu} of one GPU times {count(row.gpus, 'GPU')}, which is {right}"
            yield Finding("total_wrong", (row.line,), str(total), right, sentence)


def _beside(row: Row, one: str, all_: str) -> tuple[Number, Number] | None:
    """Both rates where both are printed."""
    per_gpu, total = row.values.get(one), row.values.get(all_)
    return (per_gpu, total) if per_gpu and total and row.gpus and total.text != per_gpu.text else None


def _above_peak(row: Row) -> Iterator[Finding]:
    mfu = row.values.get("mfu")
    if mfu and mfu.interval.low > 1:
        sentence = f"MFU {mfu} at {row.layout} is more than the peak"
        yield Finding("mfu_impossible", (row.line,), str(mfu), "at most 100 %", sentence)


def _one_peak(known: Sequence[tuple[Row, Interval]], rate: str) -> Iterator[Finding]:
    """Rate over MFU is one number for all rows: those off it, where most agree."""
    near = [_widened(ratio, SAME_PEAK) for _, ratio in known]
    lows, highs = sorted(each.low for each in near), sorted(each.high for each in near)
    most = max(lows, key=lambda at: bisect_right(lows, at) - bisect_left(highs, at))
    agree = [each.low <= most <= each.high for each in near]
    usual = statistics.median(ratio.best for (_, ratio), fits in zip(known, agree, strict=True) if fits)
    wrong = [found for found, fits in zip(known, agree, strict=True) if not fits]
    if len(wrong) * 2 >= len(known):
        return
    for row, ratio in wrong:
        mfu = row.values["mfu"]
        right = print_like(mfu.value * ratio.best / usual, mfu)
        sentence = (
            f"MFU {mfu} at {row.layout} does not follow from {row.values[rate]}: by the other rows' ratio of {WHAT[rate]} "
            f"to MFU it is {right}"
        )
        yield Finding("mfu_wrong", (row.line,), str(mfu), right, sentence)


def _ratio(row: Row, rate: str) -> Interval | None:
    """Of the rate of one GPU to MFU."""
    found, mfu = value(row, rate), value(row, "mfu")
    if found is None or mfu is None or (rate == "throughput" and _is_derived(row, "tflops_per_gpu", "tflops", "mfu")):
        return None
    return found.over(mfu).scaled(1 / row.size if rate == "throughput" else 1.0)


def _widened(interval: Interval, share: float) -> Interval:
    return Interval(interval.low * (1 - share), interval.high * (1 + share), interval.best)


def _flat(rows: Sequence[Row]) -> Iterator[Finding]:
    """A printed throughput that stays the same with many times the GPUs."""
    known = [row for row in rows if "throughput" in row.values and not _is_derived(row, *RATES, "mfu")]
    if not known or not is_flat(known, "throughput", MANY_GPUS):
        return
    few, many = (pick(known, key=lambda row: row.size) for pick in (min, max))
    first, last = few.values["throughput"], many.values["throughput"]
    more = quantity(many.size / few.size)
    ends = f"throughput is {first} at {few.layout} and {last} at {many.layout}"
    sentence = f"{ends}: it is of one GPU, or {more} times the GPUs do no more work"
    lines = tuple(row.line for row in known)
    follows = f"{print_like(last.value * many.size, last)} on all GPUs"
    yield Finding("rate_of_one_gpu", lines, str(last), follows, sentence)


def _is_derived(row: Row, *names: str) -> bool:
    """Whether the row's throughput is the number of one of these columns."""
    return any(row.values["throughput"].text == row.values[name].text for name in names if name in row.values)
