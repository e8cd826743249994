"""The all-reduces of one attempt and the communication they did not hide, of all ranks, on the timeline of rank 0.

Everything of a run is in memory at once, two integers per rank and all-reduce: all ranks decide whether a bucket could travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.rows import EXACT, Columns, Rejected, RowFile, check_buckets, or_zero, read_rows
from hpcddp.analysis.records.steps import ALL_STEPS, RunSteps, StepSpan, steady_rows, step_tables
from hpcddp.core.attempt_records import ClockOffset, RankEnd
from hpcddp.core.records import AFTER_PAUSE, BUCKET_COLUMNS, buckets_file
from hpcddp.core.schema import LARGEST_INT

Ints = NDArray[np.int64]

PACE = 200e-6
"""By which two clocks may go apart, as a share of the time: quartzes are good to 50 millionths each, and what steers clocks (NTP)
moves them by 500 at most for a moment. What moves more was set anew meanwhile, nobody knows when."""


def to_rank_0(times_ns: Ints, offsets: Sequence[ClockOffset]) -> Ints:
    """Times of a rank on rank 0's timeline, between its offsets before and after training; one holds all the time, none is 0."""
    if not offsets:
        return times_ns
    first, last = offsets[0], offsets[-1]
    lasted_ns = last.unix_ns - first.unix_ns
    drift = (last.offset_ns - first.offset_ns) / lasted_ns if lasted_ns else 0.0
    moved = np.rint(drift * (times_ns - first.unix_ns)).astype(np.int64)  # differences: Unix ns do not fit into a double
    at_rank_0: Ints = times_ns + first.offset_ns + moved
    return at_rank_0


def moved_ns(entry: RankEnd) -> int:
    """By how much a rank's clock moved against rank 0's where that is more than clocks do; else 0."""
    if len(entry.offsets) < 2:
        return 0
    first, last = entry.offsets[0], entry.offsets[-1]
    moved, may = abs(last.offset_ns - first.offset_ns), PACE * abs(last.unix_ns - first.unix_ns) + first.error_ns + last.error_ns
    return moved if moved > may else 0


def clocks_known(ranks: Sequence[RankEnd]) -> bool:
    """Whether times of different ranks can be compared; one rank has nobody to be compared with."""
    return len(ranks) == 1 or all(entry.offsets and not moved_ns(entry) for entry in ranks)


def clock_error_ns(ranks: Sequence[RankEnd]) -> int | None:
    """The largest error of the ranks' offsets; None where they are not known."""
    if not clocks_known(ranks) or not all(entry.offsets for entry in ranks):
        return None
    return max(offset.error_ns for entry in ranks for offset in entry.offsets)


AFTER_EXCHANGE = ("optimizer", "record", "other")
"""The parts of a step that follow its exposed communication."""

STEP_TYPES = {
    **dict.fromkeys(("step", "flags", "start_ns", "total_ns"), "int64"),
    **dict.fromkeys(("comm_exposed_ns", *(f"{part}_ns" for part in AFTER_EXCHANGE)), "float64"),
}


@dataclass(frozen=True)
class ExchangeWindow:
    """Of a rank's steps, on its own timeline: the start, and the begin and the end of its exposed communication."""

    start_ns: Ints
    begin_ns: Ints
    end_ns: Ints


class ExchangeWindows:
    """The windows of all ranks in the steps that count. Step tables are added rank by rank, one at a time.

    `first`: rank 0's table of all-reduces, where it is known already: steps without any are left out.
    """

    def __init__(self, ranks: Sequence[RankEnd], span: StepSpan = ALL_STEPS, first: Columns | None = None) -> None:
        self._entries, self._span, self.first = ranks, span, first
        self._rows, self._places = 0, np.zeros(0, np.intp)
        self.ranks: list[ExchangeWindow] = []
        self.numbers = np.zeros(0, np.int64)
        """Of the steps."""
        self.follow = np.zeros(0, np.bool_)
        """Whether each begins where the step before it in `numbers` ended."""
        self.exposed = True
        """Every rank measured its exposed communication."""

    def anew(self) -> ExchangeWindows:
        return ExchangeWindows(self._entries, self._span, self.first)

    def add(self, columns: Columns) -> None:
        """Adds the next rank's windows, if it has as many rows as the first, and all its totals are measured and possible."""
        if not self.ranks:
            self._rows, self._places = columns["step"].size, np.flatnonzero(self._counting(columns))
            self.numbers = columns["step"][self._places]
            paused = (columns["flags"][self._places] & AFTER_PAUSE) > 0
            self.follow = (np.diff(self.numbers, prepend=self.numbers[:1]) == 1) & ~paused
        if columns["step"].size != self._rows or not (columns["total_ns"] < EXACT).all():
            return
        self.exposed = self.exposed and bool(np.isfinite(columns["comm_exposed_ns"]).any())
        self.ranks.append(_window({name: columns[name][self._places] for name in STEP_TYPES}))

    def _counting(self, columns: Columns) -> NDArray[np.bool_]:
        steady = steady_rows(columns, self._span)
        return steady & np.isin(columns["step"], self.first["step"]) if self.first else steady

    def exchanged(self, step: int) -> bool:
        return self.first is not None and bool((self.first["step"] == step).any())

    def at_rank_0(self, name: str, which: NDArray[np.bool_]) -> Ints:
        """(ranks, steps): the windows' times by that name, of some of the steps, on rank 0's timeline."""
        pairs = zip(self.ranks, self._entries, strict=True)
        return np.array([to_rank_0(getattr(window, name)[which], entry.offsets) for window, entry in pairs])


def _window(columns: Mapping[str, Any]) -> ExchangeWindow:
    """end = start + total - what comes after it; begin = end - exposed communication."""
    end = columns["start_ns"] + columns["total_ns"].astype(np.int64, copy=False)
    for part in AFTER_EXCHANGE:
        end -= or_zero(columns[f"{part}_ns"]).astype(np.int64, copy=False)
    begin = end - or_zero(columns["comm_exposed_ns"]).astype(np.int64, copy=False)
    return ExchangeWindow(columns["start_ns"], begin, end)


def with_shared_boundaries(steps: RunSteps, windows: ExchangeWindows, ranks: Sequence[RankEnd]) -> RunSteps:
    """The steps, each timed from the end of the exchange before it to the end of its own, when the last rank has its gradients.

    A rank's own step ends where the rank ends it, a little sooner or later each time: the variation of single steps would be
    overstated. Where that end is not known they are as they were: without all-reduces, exposed communication or clocks of every
    rank, and after a pause.
    """
    follows = np.flatnonzero(windows.follow)
    if not follows.size or len(windows.ranks) != len(ranks) or not windows.exposed or not clocks_known(ranks):
        return steps
    ends_ns = windows.at_rank_0("end_ns", np.ones(windows.numbers.size, np.bool_)).max(axis=0)
    lasted_ns = ends_ns[follows] - ends_ns[follows - 1]
    step_ns = steps.step_ns.copy()
    step_ns[np.searchsorted(steps.step, windows.numbers[follows])] = lasted_ns
    return replace(steps, step_ns=step_ns) if (lasted_ns > 0).all() else steps


BUCKET_TYPES = dict.fromkeys(BUCKET_COLUMNS, "int64")


@dataclass(frozen=True)
class RunBuckets:
    """Steady steps whose all-reduces were recorded, in Unix ns of rank 0's timeline; ranks are rows."""

    hosts: tuple[str, ...]
    clock_error_ns: int | None
    """Ranks' times may be off by so much against each other; None where an offset is not known."""
    start_ns: Ints
    """(ranks, steps): the step begins."""
    begin_ns: Ints
    """(ranks, steps): nothing is left to compute, the rank waits for gradients."""
    end_ns: Ints
    """(ranks, steps): it has them."""
    step: Ints
    """(all-reduces,): the step of each, as a column of the arrays above; ascending."""
    index: Ints
    size_bytes: Ints
    ready_ns: Ints
    """(ranks, all-reduces)"""
    done_ns: Ints

    @property
    def aligned(self) -> bool:
        return self.clock_error_ns is not None or len(self.hosts) == 1


def read_buckets(attempt: Path, ranks: Sequence[RankEnd], windows: ExchangeWindows, warnings: list[str]) -> RunBuckets | None:
    """An attempt's all-reduces; None where no all-reduce of a steady step or no exposed communication was recorded.

    Rejected where rows are missing or ranks differ. Where `windows` lacks ranks, all step rows are read again for it.
    """
    if not all(entry.bucket_rows for entry in ranks):
        return None
    first = windows.first
    if len(windows.ranks) < len(ranks):
        windows = windows.anew()
        for table in step_tables(attempt, ranks, STEP_TYPES, []):  # there were warnings of what is odd about them
            windows.add(table)
    if not windows.exposed:
        return None
    tables = (first if first and not rank else _bucket_table(attempt, rank, entry, warnings) for rank, entry in enumerate(ranks))
    found = assemble(windows, tables, ranks)
    if not found.aligned:
        moved = max(ranks, key=moved_ns)
        why = "clock offsets between ranks are not known"
        if moved_ns(moved):
            by_ms = f"{moved_ns(moved) / 1e6:.3g} ms"
            why = f"the clock of rank {moved.rank} on {moved.host} moved by {by_ms}, more than clocks drift"
        warnings.append(f"{'/'.join(attempt.parts[-3:])}: {why}: transfer, waiting for other ranks and bandwidth are unknown")
    return found if found.step.size else None


def first_table(attempt: Path, rank_0: RankEnd, warnings: list[str]) -> Columns | None:
    """Rank 0's bucket rows; None where they cannot be read."""
    try:
        return _bucket_table(attempt, 0, rank_0, warnings)
    except Rejected:
        return None


def _bucket_table(attempt: Path, rank: int, entry: RankEnd, warnings: list[str]) -> Columns:
    """By step and index: rows are written in the order in which they were done."""
    file = RowFile(buckets_file(attempt, rank), rank, entry.bucket_rows or 0, entry.bucket_crc32)
    columns = read_rows(file, BUCKET_TYPES, warnings)
    check_buckets(columns, rank)
    step, index = (np.diff(columns[name]) for name in ("step", "index"))
    if not ((step > 0) | ((step == 0) & (index >= 0))).all():
        order = np.lexsort((columns["index"], columns["step"]))
        columns = {name: values[order] for name, values in columns.items()}
    return columns


def assemble(windows: ExchangeWindows, buckets: Iterable[Columns], ranks: Sequence[RankEnd]) -> RunBuckets:
    """Puts one bucket table per rank together; Rejected where a rank has other buckets than rank 0.

    Tables are by step and index, and looked at one at a time. Of a step without bucket rows nobody knows what travelled: it is
    left out.
    """
    first: dict[str, Ints] = {}
    times: dict[str, Ints] = {}
    counted = np.zeros(0, np.bool_)
    for rank, (columns, entry) in enumerate(zip(buckets, ranks, strict=True)):
        if not first:
            first = {name: columns[name] for name in ("step", "index", "bytes")}
            counted = np.isin(first["step"], windows.numbers)
            times = {name: np.empty((len(ranks), np.count_nonzero(counted)), np.int64) for name in ("ready_ns", "done_ns")}
        if not all(np.array_equal(columns[name], values) for name, values in first.items()):
            raise Rejected(f"rank {rank} exchanged other buckets than rank 0 ({columns['step'].size} and {counted.size} rows)")
        for name, of_ranks in times.items():
            of_ranks[rank] = to_rank_0(columns[name][counted], entry.offsets)
    recorded = np.isin(windows.numbers, first["step"])
    return RunBuckets(
        hosts=tuple(entry.host for entry in ranks),
        clock_error_ns=clock_error_ns(ranks),
        **{name: windows.at_rank_0(name, recorded) for name in ("start_ns", "begin_ns", "end_ns")},
        step=np.searchsorted(windows.numbers[recorded], first["step"][counted]),
        index=first["index"][counted],
        size_bytes=first["bytes"][counted],
        **times,
    )


def joined_buckets(attempts: Sequence[RunBuckets]) -> RunBuckets:
    """The all-reduces of a run, from those of its attempts (at least one); a rank that moved has all its hosts' names.

    Each attempt has clocks of its own: attempts are placed one after another without a gap.
    """
    if len(attempts) == 1:
        return attempts[0]
    errors = [each.clock_error_ns for each in attempts]
    begins = np.cumsum([0, *(each.start_ns.shape[1] for each in attempts)])
    shifts = _one_after_another(attempts)
    times = {
        name: np.concatenate([getattr(each, name) + shift for each, shift in zip(attempts, shifts, strict=True)], axis=1)
        for name in TIMES
    }
    return RunBuckets(
        hosts=joined_hosts([each.hosts for each in attempts]),
        clock_error_ns=None if None in errors else max(error for error in errors if error is not None),
        step=np.concatenate([each.step + begin for each, begin in zip(attempts, begins[:-1], strict=True)]),
        index=np.concatenate([each.index for each in attempts]),
        size_bytes=np.concatenate([each.size_bytes for each in attempts]),
        **times,
    )


TIMES = ("start_ns", "begin_ns", "end_ns", "ready_ns", "done_ns")


def _one_after_another(attempts: Sequence[RunBuckets]) -> list[int]:
    """What to add to the times of each attempt; Rejected where they cannot be times."""
    shifts, free_ns = [], 0
    for each in attempts:
        times = [getattr(each, name) for name in TIMES]
        first, last = min(int(array.min()) for array in times), max(int(array.max()) for array in times)
        shifts.append(free_ns - first)
        if max(abs(shifts[-1]), free_ns + last - first) > LARGEST_INT:
            raise Rejected("all-reduces lasted longer than can be true")
        free_ns += last - first
    return shifts


def joined_hosts(attempts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Of each rank the names of the hosts it ran on, each once."""
    return tuple(" + ".join(dict.fromkeys(names)) for names in zip(*attempts, strict=True))
