"""Do throughput, time, steps, batch and bandwidth of a row describe the same work?"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from hpcddp.analysis.audit.cells import Interval, print_like
from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import ROUNDED_BATCH, Groups, batches, value
from hpcddp.analysis.audit.row import Row
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.text import count

SAME_WORK = 0.05
"""Throughput and time of one run may count slightly different things: the last batch, evaluation."""

HIDDEN = 1.5
"""Part of the communication hides behind backward, differently from row to row: by at most this factor."""

Key = Callable[[Row], float]


def check_work(groups: Groups) -> Iterator[Finding]:
    """Throughput, times, steps, batches and bandwidths that contradict each other."""
    yield from _throughput_of_samples(groups.table.measured)
    for rows in groups.by_series().values():
        measured = [row for row in rows if row.summary is None]
        yield from _throughput_between(measured)
        yield from _steps_between(measured)
        yield from _bandwidth(measured)
        yield from _kind_of_scaling(measured)
    for row in groups.table.measured:
        yield from _steps_of_samples(row)


def _throughput_of_samples(rows: Sequence[Row]) -> Iterator[Finding]:
    """Throughput times time is the samples of the table."""
    wrong = []
    for row in rows:
        work, samples = _work(row), _samples_of(row)
        ratio = work.scaled(1 / samples) if work and samples else None
        if ratio and not ratio.overlaps(Interval(1 - SAME_WORK, 1 + SAME_WORK, 1)):
            wrong.append((row, ratio.best, samples))
    if wrong:
        row, times_, samples = wrong[0]
        right = print_like(samples / row.values["time"].value, row.values["throughput"])
        many = f" (and {count(len(wrong) - 1, 'more row')})" if len(wrong) > 1 else ""
        sentence = f"throughput times time is {quantity(times_)} times the {samples:,} samples at {row.layout}{many}"
        yield Finding("throughput_wrong", tuple(each.line for each, *_ in wrong), str(row.values["throughput"]), right, sentence)


def _samples_of(row: Row) -> int:
    """Those that the row's time is for, of a step or of the epochs; 0 where the table does not tell."""
    if of_step := row.counts.get("samples_per_step"):
        return of_step
    if row.step_time:
        found = batches(row) if "samples" in row.counts else None  # tokens of a sample are not told
        return found[1] if found else 0
    return row.counts.get("samples", 0) * row.counts.get("epochs", 1)


def _work(row: Row) -> Interval | None:
    rate, time = value(row, "throughput"), value(row, "time")
    return rate.product(time) if rate and time else None


def _throughput_between(rows: Sequence[Row]) -> Iterator[Finding]:
    """Without the number of samples: the same work in all rows, or in proportion to GPUs or to the global batch."""
    known = [(row, work) for row in rows if not _samples_of(row) and (work := _work(row))]
    if len(known) < 3:
        return
    keys: list[Key] = [lambda _: 1.0, lambda row: row.size, lambda row: (row.replicas or row.size) * (row.batch or 1)]
    wrong = min((_astray(known, key) for key in keys), key=len)
    if len(wrong) * 2 < len(known):
        for row, done, usual in wrong:
            right = print_like(usual / row.values["time"].value, row.values["throughput"])
            parts = f"throughput {row.values['throughput']} times {row.values['time']} at {row.layout}"
            sentence = f"{parts} is {quantity(done / usual)} times the work of the other rows"
            yield Finding("throughput_wrong", (row.line,), str(row.values["throughput"]), right, sentence)


def _astray(known: Sequence[tuple[Row, Interval]], key: Key) -> list[tuple[Row, float, float]]:
    """(row, its work, the work it should be) of those more than SAME_WORK off the usual."""
    usual = statistics.median(work.best / key(row) for row, work in known)
    band = Interval(usual * (1 - SAME_WORK), usual * (1 + SAME_WORK), usual)
    return [(row, work.best, usual * key(row)) for row, work in known if not work.scaled(1 / key(row)).overlaps(band)]


def steps_checked(groups: Groups) -> int:
    """How many step counts follow from the row's own samples, or from what the other rows agree on."""
    of_samples = sum(_exact_steps(row) is not None for row in groups.table.measured)
    of_series = ([row for row in rows if row.summary is None] for rows in groups.by_series().values())
    return of_samples + sum(len(_without_samples(rows)) for rows in of_series if _agreed(_without_samples(rows)))


def _exact_steps(row: Row) -> float | None:
    """Samples / global batch."""
    samples, batch = row.counts.get("samples"), batches(row)
    return samples / batch[1] if "steps" in row.counts and samples and batch else None


def _steps_of_samples(row: Row) -> Iterator[Finding]:
    exact = _exact_steps(row)
    if exact is None:
        return
    steps, samples, total = row.counts["steps"], row.counts["samples"], (batches(row) or (0, 0))[1]
    right = {math.ceil(exact) * epochs for epochs in (1, row.counts.get("epochs", 1))}
    right |= {math.floor(exact) * epochs for epochs in (1, row.counts.get("epochs", 1))}
    if steps not in right:
        of = f"{row.batch} on {row.layout}" if row.batch else f"{total:,}"
        sentence = f"{samples:,} samples in batches of {of} are {math.ceil(exact):,} steps, not {steps:,}"
        yield Finding("steps_wrong", (row.line,), f"{steps:,}", f"{math.ceil(exact):,}", sentence)


def _steps_between(rows: Sequence[Row]) -> Iterator[Finding]:
    """Without the number of samples: the number that most rows agree on."""
    known = _without_samples(rows)
    samples, fits = _agreed(known) or (0.0, known)
    fitting = {row.line for row in fits}
    for row in known:  # equal everywhere: a fixed number of steps
        if row.line not in fitting and row.counts["steps"] != fits[0].counts["steps"]:
            right = math.ceil(samples / _global_batch(row))
            sentence = f"{row.counts['steps']:,} steps on {row.layout} do not follow from the other rows, which give {right:,}"
            yield Finding("steps_wrong", (row.line,), f"{row.counts['steps']:,}", f"{right:,}", sentence)


def _without_samples(rows: Sequence[Row]) -> list[Row]:
    """Those whose steps can be judged by other rows only."""
    return [row for row in rows if "steps" in row.counts and "samples" not in row.counts and row.gpus]


def _agreed(known: Sequence[Row]) -> tuple[float, list[Row]] | None:
    """(samples, the rows whose steps they give), of three rows and most of them at least."""
    best: tuple[float, list[Row]] = (0.0, [])
    for down in (0, 1):  # rounded up: samples in ((steps - 1) batches, steps batches]; down: one batch more
        spans = {row.line: _samples(row, down) for row in known}
        lows, highs = (sorted(getattr(span, end) for span in spans.values()) for end in ("low", "high"))
        points = dict.fromkeys(span.high - 0.5 - 1e-6 * (1 - down) for span in spans.values())
        held = {point: bisect_left(lows, point) - bisect_right(highs, point) for point in points}
        point = max(held, key=lambda each: held[each], default=0.0)
        if held and held[point] > len(best[1]):
            best = (point, [row for row in known if spans[row.line].low < point < spans[row.line].high])
    return best if len(best[1]) >= 3 and len(best[1]) * 2 > len(known) else None


def _global_batch(row: Row) -> int:
    """In batches of one GPU where the table tells no batch."""
    found = batches(row)
    return found[1] if found else row.gpus or 1


def _samples(row: Row, down: int) -> Interval:
    batch = _global_batch(row)
    low, high = (row.counts["steps"] - 1 + down) * batch, (row.counts["steps"] + down) * batch
    return Interval(low, high, (low + high) / 2)


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
    """Said to be weak with the same samples or the same global batch at every size, or strong with samples that grow."""
    said = [row for row in rows if row.scaling]
    words = {(row.scaling or "").lower() for row in said}
    if len({row.size for row in said}) < 2 or len(words) != 1:
        return
    word = words.pop()
    if found := _held(word, said) or _batch_of_weak(word, said):
        held, right = found
        sentence = f"called {word} scaling, but {held}: that is {right}"
        yield Finding("scaling_kind_wrong", tuple(row.line for row in said), word, right, sentence)


def _held(word: str, said: Sequence[Row]) -> tuple[str, str] | None:
    """(what the samples do, which scaling that is)"""
    known = [row for row in said if row.counts.get("samples")]
    sizes, samples = {row.size for row in known}, {row.counts["samples"] for row in known}
    if len(sizes) < 2:
        return None
    if "weak" in word and len(samples) == 1:
        return f"every size has {samples.pop():,} samples", "strong scaling"
    if "strong" in word and len(samples) == len(sizes):
        return "samples grow with the size", "weak scaling"
    return None


def _batch_of_weak(word: str, said: Sequence[Row]) -> tuple[str, str] | None:
    """(what the batch does, which scaling that is): weak scaling holds the batch per GPU."""
    known = {row.size: found for row in said if (found := batches(row))}
    if "weak" not in word or len(known) < 2:
        return None
    few, many = min(known), max(known)
    (here, total), (there, total_there) = known[few], known[many]
    if max(here, there) <= ROUNDED_BATCH * min(here, there):
        return None
    change = f"the batch per GPU is {here:g} at {count(few, 'GPU')} and {there:g} at {count(many, 'GPU')}"
    if max(total, total_there) <= ROUNDED_BATCH * min(total, total_there):
        return f"{change}, and {total:,} in all at both", "strong scaling"
    return change, "neither weak nor strong scaling"
