"""One step of a run, the one nearest to its median: what every rank did when, and when each bucket of gradients travelled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from hpcddp.analysis.records.attempts import AttemptRecords
from hpcddp.analysis.records.buckets import clocks_known, to_rank_0
from hpcddp.analysis.records.steps import RunSteps, median_step_ns
from hpcddp.core.attempt_records import RankEnd
from hpcddp.core.records import BUCKET_COLUMNS, PARTS, STEP_COLUMNS_1, buckets_file, steps_file


@dataclass(frozen=True)
class RankStep:
    """One rank's step; with `accumulate` its parts are sums over micro-batches, which in truth alternate."""

    rank: int
    host: str
    start_ns: int
    """After the first rank's start."""
    parts_ns: tuple[tuple[str, int], ...]
    """Those that were measured, in the order they happen."""

    @property
    def own_ns(self) -> int:
        return sum(ns for part, ns in self.parts_ns if part != "comm_exposed")


@dataclass(frozen=True)
class BucketStep:
    """One all-reduce, in ns after the first rank's start. It travels from the last rank's readiness."""

    index: int
    size_bytes: int
    first_ready_ns: int
    last_ready_ns: int
    done_ns: int
    """On the last rank."""


@dataclass(frozen=True)
class Timeline:
    """All on rank 0's clock; where offsets between clocks are not known (not `aligned`) every rank begins at 0."""

    step: int
    step_ns: int
    """The mean over ranks; with known clocks and all-reduces, between boundaries that all ranks share."""
    aligned: bool
    ranks: tuple[RankStep, ...]
    buckets: tuple[BucketStep, ...]


def typical_steps(steps: RunSteps) -> Iterator[int]:
    """Places of the timed steps, sorted by how near their length is to the median; of equals the earliest first."""
    middle = median_step_ns(steps)
    places = np.flatnonzero(steps.steady)
    if middle is not None:
        yield from map(int, places[np.argsort(np.abs(steps.step_ns[places] - middle), kind="stable")])


NEAR_BYTES = 1024
"""Within so much of a row lines are read one by one."""

LOOKED_AT = 200
"""Steps nearest to the median of which one should have its all-reduces recorded; of how many that is so is the run's choice."""

CsvRow = Mapping[str, int | None]


def read_timeline(attempts: Sequence[AttemptRecords], steps: RunSteps) -> Timeline | None:
    """The typical step of all, with all-reduces where there are any; None where a row of it is none, or cannot be read."""
    try:
        return _read(attempts, steps)
    except (OSError, ValueError, TypeError, OverflowError):
        return None


def _read(attempts: Sequence[AttemptRecords], steps: RunSteps) -> Timeline | None:
    hooked, begins = any(each.hooked for each in attempts), [int(each.steps.step[0]) for each in attempts]
    for place in islice(typical_steps(steps), LOOKED_AT):
        step = int(steps.step[place])
        attempt = attempts[bisect_right(begins, step) - 1]
        folder, ranks = attempt.folder, range(len(attempt.ranks))
        if hooked and not (attempt.hooked and attempt.windows.exchanged(step)):
            continue
        written = _rows([buckets_file(folder, rank) for rank in ranks], BUCKET_COLUMNS, step) if hooked else []
        buckets = [sorted(rows, key=lambda row: row["index"] or 0) for rows in written]  # written as they were done
        if all(buckets):
            rows = _rows([steps_file(folder, rank) for rank in ranks], STEP_COLUMNS_1, step)
            if not all(rows):
                return None
            return _timeline(step, int(steps.step_ns[place]), [found[0] for found in rows], buckets, attempt.ranks)
    return None


def _timeline(
    step: int, step_ns: int, rows: Sequence[CsvRow], buckets: Sequence[Sequence[CsvRow]], ranks: Sequence[RankEnd]
) -> Timeline:
    aligned = clocks_known(ranks)
    starts = [_at([row], "start_ns", entry)[0] for row, entry in zip(rows, ranks, strict=True)]
    origins = [min(starts)] * len(starts) if aligned else starts
    parts = [tuple((part, ns) for part in PARTS if (ns := row[f"{part}_ns"]) is not None) for row in rows]
    found = [RankStep(rank, ranks[rank].host, starts[rank] - origins[rank], of) for rank, of in enumerate(parts)]
    return Timeline(step, step_ns, aligned, tuple(found), _travels(buckets, ranks, origins) if buckets else ())


def _travels(buckets: Sequence[Sequence[CsvRow]], ranks: Sequence[RankEnd], origins: Sequence[int]) -> tuple[BucketStep, ...]:
    """Of each bucket, over the ranks; in the order in which they begin to travel."""
    views = list(zip(buckets, ranks, origins, strict=True))
    ready, done = (
        zip(*([at - origin for at in _at(rows, name, entry)] for rows, entry, origin in views), strict=True)
        for name in ("ready_ns", "done_ns")
    )
    found = [
        BucketStep(int(row["index"] or 0), int(row["bytes"] or 0), min(begins), max(begins), max(ends))
        for row, begins, ends in zip(buckets[0], ready, done, strict=True)
    ]
    return tuple(sorted(found, key=lambda bucket: (bucket.last_ready_ns, bucket.index)))


def _at(rows: Sequence[CsvRow], name: str, entry: RankEnd) -> list[int]:
    times: list[int] = to_rank_0(np.array([row[name] for row in rows], dtype=np.int64), entry.offsets).tolist()
    return times


def _rows(files: Sequence[Path], columns: Sequence[str], step: int) -> list[list[CsvRow]]:
    return [[_row(line, columns) for line in lines] for lines in lines_of_step(files, step)]


def _row(line: bytes, columns: Sequence[str]) -> CsvRow:
    cells = line.decode().rstrip("\n").split(",")[: len(columns)]  # of what came later, nothing is read
    return {name: int(cell) if cell else None for name, cell in zip(columns, cells, strict=True)}


def lines_of_step(files: Iterable[Path], step: int) -> Iterator[list[bytes]]:
    """Of each file the lines that begin with the step's number: CSV whose lines ascend by it; lines without one end a file.

    Ranks' files are much alike: a file is first looked into where the one before it had them.
    """
    share = 0.5
    for file in files:
        with file.open("rb", buffering=NEAR_BYTES) as opened:
            size = file.stat().st_size
            begin = _before(opened, size, step, round(share * size))
            share = begin / max(size, 1)
            opened.seek(begin)
            yield _of_step(opened, step)


def _of_step(lines: Iterable[bytes], step: int) -> list[bytes]:
    until = takewhile(lambda line: (number := _number(line)) is not None and number <= step, lines)
    return [line for line in until if _number(line) == step]


def _before(opened: Any, end: int, step: int, likely: int) -> int:
    """Where a line begins that is the first one, or before those of the step and not far from them; `likely`: about there."""
    opened.readline()
    low, high = opened.tell(), end
    probes = [likely + NEAR_BYTES, likely - NEAR_BYTES]
    while high - low > NEAR_BYTES:
        probe = probes.pop() if probes else low
        if not low < probe < high:
            probe = (low + high) // 2
        opened.seek(probe)
        opened.readline()
        at, number = opened.tell(), _number(opened.readline())
        if number is None or number >= step:
            high = probe
        else:
            low = at
    return int(low)


def _number(line: bytes) -> int | None:
    digits = line.partition(b",")[0]
    return int(digits) if digits.isdigit() and line.endswith(b"\n") else None
