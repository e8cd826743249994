"""Records that cannot be true, whatever wrote them: times, bytes, clocks and gates. One of them rejects its run, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.rows import UNKNOWN, Columns, Rejected
from hpcddp.analysis.records.steps import RECORDED, or_zero
from hpcddp.core.attempt_records import EvaluationResult, GateResult, RankClock, TrainingEnd
from hpcddp.core.comm_record import CommRecord
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.records import MOST_LOSS_E9, PARTS

DAY_NS = 86_400_000_000_000
"""No step lasts a day, as ranks give each other up after minutes (rendezvous.TIMEOUT); no cluster's clock is off by one."""

LATEST_NS = 2**62
"""Of a Unix time: the year 2116. Later ones, with an offset or a step added, would not fit into 64 bits."""

ROUNDING_NS, ROUNDING_SHARE = 20_000, 1e-3
"""What parts may be above their step, and a step may begin before the one before it ended: events of CUDA are 0.5 us apart at
least, and elapsed times come as 32-bit floats of milliseconds; with `accumulate` a part is a sum of dozens of them."""

MOST_BUCKET_BYTES = 2**40
"""A bucket lies in one process's memory; no GPU has a quarter of 1 TiB."""

MOST_MEMORY_BYTES = 2**50
"""The largest machines that share one memory have 48 TiB."""

MOST_SAMPLES = 2**40
"""Of a rank in a step: exact in a double, and so are their sums."""

OLDEST_GATES = ("parameters agree",)
"""What every version records of training; since launch.json says which `gates` there will be, those."""

Mask = NDArray[np.bool_]

Ranges = dict[str, tuple[int, int, str]]
"""Column -> the least and the most of its values, and why no other can be."""

PART = (0, DAY_NS, "a part takes no less than no time, and less than a day")

STEP_RANGES: Ranges = {
    "total_ns": (1, DAY_NS, "a step takes time, and less than a day"),
    **{f"{part}_ns": PART for part in RECORDED},
    "start_ns": (UNKNOWN, LATEST_NS, "no time of this century"),
    "loss_e9": (0, MOST_LOSS_E9, "no cross entropy is negative, nor written above a million"),
    "samples": (0, MOST_SAMPLES, "no step trains that many"),
}

BUCKET_RANGES: Ranges = {
    "bytes": (1, MOST_BUCKET_BYTES, "no bucket of gradients has that many"),
    "index": (0, LATEST_NS, "buckets count from 0"),
    "ready_ns": (0, LATEST_NS, "no time of this century"),
}


def check_steps(columns: Columns, rank: int) -> None:
    """Rejected where a rank's step rows cannot be true; cells that were not measured are passed over."""
    rows = _Rows(columns, rank)
    again = np.zeros(columns["step"].size, np.bool_)
    again[1:] = columns["step"][1:] <= columns["step"][:-1]
    rows.reject_where(again, "a row", columns["step"], "it does not come after the row before it")
    rows.check_ranges(STEP_RANGES)
    parts, total = _sum([columns[name] for part in PARTS if (name := f"{part}_ns") in columns]), columns["total_ns"]
    rows.reject_where(_above(parts - total, total), "parts that add up to", parts, "more than the step itself")
    if "start_ns" in columns:
        early = _early(columns["start_ns"], total)
        rows.reject_where(early, "start_ns", columns["start_ns"], "before the step before it ended: its clock ran backwards")


def _early(start: NDArray[Any], total: NDArray[Any]) -> Mask:
    """Steps that begin before the one before them ended: they follow each other on the rank's own timeline."""
    early = np.zeros(start.size, np.bool_)
    early[1:] = _above(start[:-1] + or_zero(total)[:-1] - start[1:], total[:-1])
    early[1:] &= (start[1:] != UNKNOWN) & (start[:-1] != UNKNOWN)
    return early


def check_buckets(columns: Columns, rank: int) -> None:
    """Rejected where a rank's all-reduces cannot be true."""
    rows = _Rows(columns, rank)
    rows.check_ranges(BUCKET_RANGES)
    lasts = columns["done_ns"] - columns["ready_ns"]
    rows.reject_where((lasts < -ROUNDING_NS) | (lasts > DAY_NS), "done_ns - ready_ns", lasts, "no all-reduce lasts that")


class _Rows:
    """A rank's rows, and the sentence for one that cannot be true."""

    def __init__(self, columns: Columns, rank: int) -> None:
        self._columns, self._rank = columns, rank

    def check_ranges(self, ranges: Ranges) -> None:
        """Of the columns that are there."""
        for name, (low, high, why) in ranges.items():
            values = self._columns.get(name)
            if values is None or (values.dtype == np.int64 and values.size and low <= values.min() and values.max() <= high):
                continue  # nearly always, in a fifth of the time
            self.reject_where((values < low) | (values > high), name, values, why)

    def reject_where(self, odd: Mask, what: str, values: NDArray[Any], why: str) -> None:
        if odd.any():
            place = int(odd.argmax())
            value = values[place] if values.dtype == np.int64 else f"{values[place]:.0f}"
            raise Rejected(f"rank {self._rank}: step {self._columns['step'][place]} has {what} {value}: {why}")


def _above(excess: NDArray[Any], total: NDArray[Any]) -> Mask:
    """Where `excess` is more than rounding explains."""
    above: Mask = excess > ROUNDING_NS
    if above.any():
        above = excess > ROUNDING_NS + ROUNDING_SHARE * or_zero(total)
    return above


def _sum(parts: Sequence[NDArray[Any]]) -> Any:
    """The sum of those parts that were measured."""
    measured = [part for part in parts if part.dtype == np.int64 or np.isfinite(part).any()]
    return sum((or_zero(part) for part in measured), start=np.zeros(parts[0].size, np.int64))


def check_end(end: TrainingEnd, point: Point | None) -> None:
    """Rejected where end.json cannot be of that point, or its checksums or clocks cannot be."""
    if point is not None and end.global_batch != point.global_batch:
        raise Rejected(f"end.json: global_batch is {end.global_batch}, and the point's is {point.global_batch}")
    if end.evaluation:
        _check_evaluation(end.evaluation)
    for place, entry in enumerate(end.ranks):
        if entry.crc32 is None:
            raise Rejected(f"end.json: ranks[{place}].crc32 is None, not a whole number")
        if entry.bucket_rows and entry.bucket_crc32 is None:
            raise Rejected("launch.json or end.json lacks 'bucket_crc32'")
        _check_clock(f"rank {entry.rank}: its clock", entry.clock or RankClock())
        for kind, size in (entry.peak_memory_bytes or {}).items():
            if size > MOST_MEMORY_BYTES:
                raise Rejected(f"rank {entry.rank}: peak_memory_bytes {kind} is {size}: no machine has that")


def _check_evaluation(found: EvaluationResult) -> None:
    if found.correct is not None and found.correct > (found.samples or 0):
        raise Rejected(f"end.json: evaluation.correct is {found.correct}, of {found.samples} samples")
    if found.loss is not None and not 0 <= found.loss < math.inf:
        raise Rejected(f"end.json: evaluation.loss is {found.loss}: a cross entropy is not negative, nor infinite")


def missing_gate(found: Sequence[GateResult], launch: LaunchRecord, trains: bool) -> str | None:
    """The sentence for a gate that launch.json names and end.json lacks; None where all are there."""
    names = {gate.name for gate in found}
    for name in launch.gates or (OLDEST_GATES if trains else ()):
        if name not in names:
            return f"end.json: gate `{name}` is missing"
    return None if names else "end.json: there is no gate at all"


def _check_clock(whose: str, clock: RankClock) -> None:
    for when, offset in (("start", clock.start), ("end", clock.end)):
        if offset is None:
            continue
        for name, value in (("offset_ns", offset.offset_ns), ("error_ns", offset.error_ns)):
            if abs(value) > DAY_NS:
                raise Rejected(f"{whose}'s {name} at the {when} is {value}, more than a day")
        if offset.unix_ns > LATEST_NS:
            raise Rejected(f"{whose}'s unix_ns at the {when} is {offset.unix_ns}: no time of this century")
    if clock.start and clock.end and clock.end.unix_ns < clock.start.unix_ns:
        raise Rejected(f"{whose} ran backwards, from {clock.start.unix_ns} to {clock.end.unix_ns}")


def check_comm_times(comm: CommRecord) -> None:
    """Rejected where times of collectives cannot be true."""
    for op, found in comm.ops.items():
        for size in found.sizes:
            where = f"comm.json: {op} of {size.bytes} bytes"
            if size.bytes > MOST_BUCKET_BYTES:
                raise Rejected(f"{where}: no message has that many")
            if not 0 < size.time_min_s <= size.time_s <= size.time_max_s <= DAY_NS / 1e9:
                times = f"{size.time_min_s:g}, {size.time_s:g}, {size.time_max_s:g}"
                raise Rejected(f"{where} took {times} s at least, typically and at most, which cannot be")
