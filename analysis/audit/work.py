"""Do rates, times, steps, batches, bandwidths and parts of a row describe the same work?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from hpcddp.analysis.audit.cells import Interval, print_like
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import ROUNDED_BATCH, Groups, batches
from hpcddp.analysis.audit.table import AuditTable, Row
from hpcddp.analysis.util.wording import clock, quantity
from hpcddp.core.text import count

SAME_WORK = 0.05
"""Throughput and time of one run may count slightly different things: the last batch, evaluation."""

SAME_RUN = 0.01
"""Rates of one GPU and of all may be means of slightly different steps."""

HIDDEN = 1.5
"""Part of the communication hides behind backward, differently from row to row: by at most this factor."""

FLAT, MANY_GPUS = 1.25, 4.0
"""A rate that changes by less while the GPUs grow so many times is that of one GPU, or the GPUs do no more work."""

PARTS = {"compute": "compute", "comm": "communication", "data_wait": "wait for data"}

QUEUED = 0.1
"""The GPU may still work on what was queued while the process waits for data: for so much of the time."""


def check_work(groups: Groups, known_rate: bool) -> Iterator[Finding]:
    """Numbers of a row that contradict each other; `known_rate`: claims say whether rates are of one GPU or of all."""
    table = groups.table
    for row in table.measured:
        yield from _steps_of_samples(row)
        yield from _total(row, table)
        yield from _parts(row)
        yield from _utilization(row)
    yield from _throughput_of_samples(table)
    for rows in groups.by_series().values():
        measured = [row for row in rows if row.summary is None]
        yield from _throughput_between(measured, table)
        yield from _bandwidth(measured)
        yield from _kind_of_scaling(measured)
        if not known_rate and "throughput" in table.columns and not table.is_each("throughput") and not _works(measured, table):
            yield from _flat(measured)


def _works(rows: Sequence[Row], table: AuditTable) -> list[tuple[Row, Interval]]:
    """Throughput times time of each row, in a table with one of both."""
    if [key for key in table.metrics if not table.is_each(key)] != ["time", "throughput"]:
        return []
    return [(row, rate.product(time)) for row in rows if (rate := row.value("throughput")) and (time := row.value("time"))]


def _samples_of(row: Row, table: AuditTable) -> int:
    """Those that the row's time is for, of a step or of the epochs; 0 where the table does not tell."""
    if table.columns["time"].of_step:
        found = batches(row) if "samples" in row.counts else None  # tokens of a sample are not told
        return found[1] if found else 0
    return row.counts.get("samples", 0) * row.counts.get("epochs", 1)


def _throughput_of_samples(table: AuditTable) -> Iterator[Finding]:
    """Throughput times time is the samples of the table."""
    wrong = []
    for row, work in _works(table.measured, table):
        samples = _samples_of(row, table)
        ratio = work.scaled(1 / samples) if samples else None
        if ratio and not ratio.overlaps(Interval(1 - SAME_WORK, 1 + SAME_WORK, 1)):
            wrong.append((row, ratio.best, samples))
    if wrong:
        row, times_, samples = wrong[0]
        right = print_like(samples / row.values["time"].value, row.values["throughput"])
        many = f" (and {count(len(wrong) - 1, 'more row')})" if len(wrong) > 1 else ""
        sentence = f"throughput times time is {quantity(times_)} times the {samples:,} samples at {row.layout}{many}"
        yield Finding("throughput_wrong", tuple(each.line for each, *_ in wrong), str(row.values["throughput"]), right, sentence)


def _throughput_between(rows: Sequence[Row], table: AuditTable) -> Iterator[Finding]:
    """Without the number of samples: the same work in all rows, or in proportion to GPUs or to the global batch."""
    known = [(row, work) for row, work in _works(rows, table) if not _samples_of(row, table)]
    if len(known) < 3:
        return
    keys: list[Callable[[Row], float]] = [lambda _: 1.0]
    if not table.columns["time"].of_epoch:
        keys += [lambda row: row.size, lambda row: 1 / row.size, lambda row: row.size * (row.batch or 1)]
    wrong = min((_astray(known, key) for key in keys), key=len)
    if len(keys) == 1 and len(wrong) * 2 >= len(known) and not _astray(known, lambda row: row.size):
        (first, work), (last, work_there) = known[0], known[-1]
        if first.size == last.size:
            return
        by_time = first.values["time"].value / last.values["time"].value
        by_rate = last.values["throughput"].value / first.values["throughput"].value
        fast = f"{last.layout} is {by_time:.2f} times as fast as {first.layout} by time and {by_rate:.2f} times by rate"
        work_of_both = f"{quantity(work.best)} samples at {first.layout} and {quantity(work_there.best)} at {last.layout}"
        sentence = f"{fast}: an epoch has {work_of_both}"
        lines = tuple(row.line for row, _ in known)
        yield Finding("throughput_wrong", lines, f"{by_rate:.2f}", f"{by_time:.2f}", sentence)
    if len(wrong) * 2 < len(known):
        for row, done, usual in wrong:
            right = print_like(usual / row.values["time"].value, row.values["throughput"])
            parts = f"throughput {row.values['throughput']} times {row.values['time']} at {row.layout}"
            sentence = f"{parts} is {quantity(done / usual)} times the work of the other rows"
            yield Finding("throughput_wrong", (row.line,), str(row.values["throughput"]), right, sentence)


def _astray(known: Sequence[tuple[Row, Interval]], key: Callable[[Row], float]) -> list[tuple[Row, float, float]]:
    """(row, its work, the work it should be) of those more than SAME_WORK off the usual."""
    usual = statistics.median(work.best / key(row) for row, work in known)
    band = Interval(usual * (1 - SAME_WORK), usual * (1 + SAME_WORK), usual)
    return [(row, work.best, usual * key(row)) for row, work in known if not work.scaled(1 / key(row)).overlaps(band)]


def _total(row: Row, table: AuditTable) -> Iterator[Finding]:
    """The rate of all GPUs beside that of one; rates of different work are further apart than any mistake."""
    one, all_ = (
        [key for key in row.values if key.startswith("throughput") and table.is_each(key) == each] for each in (True, False)
    )
    if len(one) != 1 or len(all_) != 1 or not row.gpus:
        return
    per_gpu, total = row.values[one[0]], row.values[all_[0]]
    off = total.value / per_gpu.value
    if not per_gpu.interval.widened(SAME_RUN).overlaps(total.interval) and 1 / (2 * row.gpus) < off < 2 * row.gpus:
        right = print_like(per_gpu.value, total)
        sentence = f"{total} at {row.layout} is not {per_gpu} of one GPU times {count(row.gpus, 'GPU')}, which is {right}"
        yield Finding("total_wrong", (row.line,), str(total), right, sentence)


def _flat(rows: Sequence[Row]) -> Iterator[Finding]:
    """A rate that stays the same with many times the GPUs, and nothing that tells of how many it is."""
    known = sorted((row for row in rows if "throughput" in row.values), key=lambda row: row.size)
    if not known or known[-1].size < MANY_GPUS * known[0].size:
        return
    first, last = known[0].values["throughput"], known[-1].values["throughput"]
    if max(first.value, last.value) > FLAT * min(first.value, last.value):
        return
    ends = f"throughput is {first} at {known[0].layout} and {last} at {known[-1].layout}"
    sentence = f"{ends}: it is of one GPU, or {quantity(known[-1].size / known[0].size)} times the GPUs do no more work"
    follows = f"{print_like(last.value * known[-1].size, last)} on all GPUs"
    yield Finding("rate_of_one_gpu", tuple(row.line for row in known), str(last), follows, sentence)


def _parts(row: Row) -> Iterator[Finding]:
    """Parts longer than the whole."""
    time, parts = row.values.get("time"), {name: row.values[name] for name in PARTS if name in row.values}
    if not time or len(parts) < 2 or sum(each.interval.low for each in parts.values()) <= 1.02 * time.interval.high:
        return
    total = sum(each.value for each in parts.values())
    shown = clock(total) if time.clock else f"{quantity(total)} s"
    said = " and ".join(f"{PARTS[name]} {each}" for name, each in parts.items())
    sentence = f"{said} at {row.layout} are {shown}, more than the whole, {time}"
    yield Finding("parts_exceed_total", (row.line,), str(time), f"at least {shown}", sentence)


def _utilization(row: Row) -> Iterator[Finding]:
    """GPUs said to be busy while they wait."""
    time, wait, busy = (row.values.get(name) for name in ("time", "data_wait", "utilization"))
    if not time or not wait or not busy:
        return
    left = max(0.0, 1 - wait.interval.low / time.interval.high)
    if busy.interval.low > left + QUEUED:
        most = f"about {100 * left:.0f} %"
        what = f"GPU utilisation {busy} at {row.layout} stands beside a wait for data of {wait} in {time}"
        sentence = f"{what}, which leaves the GPU work for {most} of the time"
        yield Finding("utilization_contradicts", (row.line,), str(busy), f"at most {most}", sentence)


def steps_checked(groups: Groups) -> int:
    """How many step counts follow from the row's own samples."""
    return sum(_exact_steps(row) is not None for row in groups.table.measured)


def _exact_steps(row: Row) -> float | None:
    """Samples / global batch."""
    samples, batch = row.counts.get("samples"), batches(row)
    return samples / batch[1] if "steps" in row.counts and samples and batch else None


def _steps_of_samples(row: Row) -> Iterator[Finding]:
    exact = _exact_steps(row)
    if exact is None:
        return
    steps, samples, total = row.counts["steps"], row.counts["samples"], (batches(row) or (0, 0))[1]
    epochs = (1, row.counts.get("epochs", 1))
    if steps not in {rounded(exact) * each for each in epochs for rounded in (math.ceil, math.floor)}:
        of = f"{row.batch} on {row.layout}" if row.batch else f"{total:,}"
        sentence = f"{samples:,} samples in batches of {of} are {math.ceil(exact):,} steps, not {steps:,}"
        yield Finding("steps_wrong", (row.line,), f"{steps:,}", f"{math.ceil(exact):,}", sentence)


def _bandwidth(rows: Sequence[Row]) -> Iterator[Finding]:
    """Bandwidth times communication time per step, over 2(n-1)/n, is the bytes of the gradients: the same in every row."""
    bytes_of = {row.line: found for row in rows if (found := _exchanged(row))}
    if len(bytes_of) < 2 or max(bytes_of.values()) <= HIDDEN * min(bytes_of.values()):
        return
    ratio = max(bytes_of.values()) / min(bytes_of.values())
    first = next(row for row in rows if row.line in bytes_of)
    sentence = f"bandwidth times communication time gives gradients that differ {quantity(ratio)}-fold between rows of one model"
    yield Finding("bandwidth_impossible", tuple(bytes_of), str(first.values["bandwidth"]), "one size for all rows", sentence)


def _exchanged(row: Row) -> float | None:
    """In the bandwidth's unit; per step where the number of steps is known."""
    bandwidth, comm = row.values.get("bandwidth"), row.values.get("comm")
    if not bandwidth or not comm or row.size < 2:
        return None
    samples = row.counts.get("samples")
    steps = row.counts.get("steps") or (samples / ((row.batch or 1) * row.size) if samples else 1)
    return bandwidth.value * comm.value / steps / (2 * (row.size - 1) / row.size)


def _kind_of_scaling(rows: Sequence[Row]) -> Iterator[Finding]:
    """Said to be weak with the same samples or another batch per GPU at every size, or strong with samples that grow."""
    said = [row for row in rows if row.scaling]
    words = {(row.scaling or "").lower() for row in said}
    if len({row.size for row in said}) < 2 or len(words) != 1:
        return
    word, known = words.pop(), [row for row in said if "samples" in row.counts]
    sizes, samples = {row.size for row in known}, {row.counts["samples"] for row in known}
    batch = {row.size: found for row in said if (found := batches(row))}
    (here, total), (there, total_there) = (batch[pick(batch)] if batch else (1.0, 1) for pick in (min, max))
    held, right = "", "strong scaling"
    if len(sizes) > 1 and "weak" in word and len(samples) == 1:
        held = f"every size has {samples.pop():,} samples"
    elif len(sizes) > 1 and "strong" in word and len(samples) == len(sizes):
        held, right = "samples grow with the size", "weak scaling"
    elif "weak" in word and max(here, there) > ROUNDED_BATCH * min(here, there):
        held = f"the batch per GPU is {here:g} at {count(min(batch), 'GPU')} and {there:g} at {count(max(batch), 'GPU')}"
        if max(total, total_there) > ROUNDED_BATCH * min(total, total_there):
            right = "neither weak nor strong scaling"
        else:
            held += f", and {total:,} in all at both"
    if held:
        sentence = f"called {word} scaling, but {held}: that is {right}"
        yield Finding("scaling_kind_wrong", tuple(row.line for row in said), word, right, sentence)
