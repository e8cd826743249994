"""Gives rows the throughput of all GPUs where the table tells that of one, TFLOP/s or MFU, and rates their true digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcddp.analysis.audit.cells import Interval, Number
from hpcddp.analysis.audit.row import Row

FLAT = 1.25
"""A rate that changes by less while the GPUs grow twofold or more is that of one GPU."""

FEW = 3
"""Digits that count, and rows that show as much."""

WORK_FREE = ("tflops_per_gpu", "tflops", "mfu")
"""Rates that say nothing of samples: they stand for throughput only in a table without times and throughput."""


def with_rates(rows: Sequence[Row]) -> list[Row]:
    """The rows, with `throughput` where it follows, and TFLOP/s of one GPU named as such."""
    rounded = rows
    for name in ("throughput", "throughput_per_gpu"):
        rounded = _to_their_digits(rounded, name)
    found = [_of_all(row, "throughput_per_gpu") for row in _flops_named(rounded)]
    if any({"time", "throughput", "average", "median"} & set(row.values) for row in found):
        return found
    source = next((name for name in WORK_FREE if any(name in row.values for row in found)), None)
    return [_of_all(row, source) for row in found] if source else found


def _to_their_digits(rows: Sequence[Row], name: str) -> list[Row]:
    """Rates such as 12,300 and 172,000, of which none has more than three digits that count, were rounded to as many."""
    shown = [row.values[name] for row in rows if name in row.values]
    counting = max((len(each.digits.rstrip("0")) for each in shown), default=0)
    if len(shown) < FEW or counting > FEW or any(each.decimals or len(each.digits) <= FEW for each in shown):
        return list(rows)
    return [replace(row, values={**row.values, name: _rounded(row.values[name])}) if name in row.values else row for row in rows]


def _rounded(shown: Number) -> Number:
    step = shown.scale * 10.0 ** (len(shown.digits) - FEW)
    return replace(shown, interval=Interval(shown.value - step / 2, shown.value + step, shown.value))


def is_flat(rows: Sequence[Row], name: str, ratio: float) -> bool:
    """Whether a rate hardly changes between the fewest and the most GPUs, of which there are so many times more."""
    known = [row for row in rows if name in row.values]
    few, many = (pick((row.size for row in known), default=1) for pick in (min, max))
    values = [row.values[name].value for row in known if row.size in (few, many)]
    return many >= ratio * few and max(values) <= FLAT * min(values)


def _flops_named(rows: Sequence[Row]) -> list[Row]:
    """A bare `TFLOP/s` is of one GPU where it does not grow with them, series by series."""
    of_series: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if "tflops" in row.values and "tflops_per_gpu" not in row.values:
            of_series.setdefault(row.setting, []).append(row)
    flat = {row.line for of in of_series.values() if is_flat(of, "tflops", 2.0) for row in of}
    return [
        replace(row, values={**row.values, "tflops_per_gpu": row.values["tflops"]}) if row.line in flat else row for row in rows
    ]


def _of_all(row: Row, source: str) -> Row:
    """What one GPU does, times the GPUs, printed as that of one."""
    shown = row.values.get(source)
    if shown is None or "throughput" in row.values or not row.gpus:
        return row
    return replace(row, values={**row.values, "throughput": _times(shown, 1 if source == "tflops" else row.gpus)})


def _times(shown: Number, gpus: int) -> Number:
    return replace(shown, value=shown.value * gpus, interval=shown.interval.scaled(gpus), scale=shown.scale * gpus)
