"""A study with as many step records as asked for, written quickly: rows of fixed width, digits by table, a checksum each."""

from __future__ import annotations

import itertools
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.rows import UNKNOWN
from hpcddp.core.point import Point
from hpcddp.core.records import BUCKET_COLUMNS, SCHEMA, STEP_COLUMNS, WARMUP, buckets_file, steps_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import PASSED, START_NS, point, write_study

Ints = NDArray[np.int64]

POINTS = (point(16, 4, exclusive=True), point(8, 8, exclusive=True), point(32, 2, exclusive=True))
RANKS = 64
WARMUP_STEPS = 50
BUCKETS = 5
EVERY = 10
"""One step in so many has bucket rows."""

DIGITS = np.frombuffer("".join(f"{n:04d}" for n in range(10_000)).encode(), np.uint8).reshape(-1, 4)

TYPICAL_NS = {
    "data_wait": 1_500_000,
    "h2d_exposed": 400_000,
    "forward": 30_000_000,
    "backward": 60_000_000,
    "comm_exposed": 20_000_000,
    "optimizer": 3_000_000,
    "record": 20_000,
    "other": 300_000,
}
"""Each has as many digits in every row: jitter adds less than half of it."""


@dataclass(frozen=True)
class Size:
    """Of a study: `runs` of 64 ranks, dealt out to points of 64 GPUs."""

    runs: int = 39
    steps: int = 20_000

    @property
    def records(self) -> int:
        return self.runs * self.steps * RANKS


def write_records(folder: Path, size: Size) -> tuple[Study, int]:
    """The study and the bytes of its rows."""
    shutil.rmtree(folder, ignore_errors=True)
    study = write_study(folder, POINTS, repeat=-(-size.runs // len(POINTS)))
    written = [
        write_attempt(study.attempt_dir(POINTS[run % 3].label, run // 3 + 1, str(100 + run), 0), POINTS[run % 3], size.steps, run)
        for run in range(size.runs)
    ]
    return study, sum(written)


def write_attempt(attempt: Path, of: Point, steps: int, seed: int) -> int:
    """One attempt with all its files; returns the bytes of its rows."""
    random = np.random.default_rng(seed)
    (attempt / "ranks").mkdir(parents=True)
    shared = random.integers(0, 10_000_000, steps)  # what slows a step on all ranks
    entries, total = [], 0
    for rank in range(RANKS):
        step_rows, bucket_rows = rank_rows(random, steps, shared)
        steps_file(attempt, rank).write_bytes(step_rows)
        buckets_file(attempt, rank).write_bytes(bucket_rows)
        total += len(step_rows) + len(bucket_rows)
        result = {"rows": steps, "crc32": zlib.crc32(step_rows)}
        result |= {"bucket_rows": BUCKETS * -(-steps // EVERY), "bucket_crc32": zlib.crc32(bucket_rows)}
        clock = {
            when: {"unix_ns": START_NS + at, "offset_ns": rank, "error_ns": 1000} for when, at in (("start", 0), ("end", 10**13))
        }
        entries.append({"rank": rank, "host": f"r{rank // of.layout.gpus_per_node:03d}", "clock": clock, **result})
    launch = {"schema": SCHEMA, "point": of.id, "ranks": RANKS, "ranks_per_node": of.layout.gpus_per_node, "backend": "slurm"}
    launch |= {"env_id": "env-1", "gpus": ["V100"], "versions": {"torch": "2.7.1"}, "started_unix_ns": START_NS}
    write_json(attempt / "launch.json", {**launch, "hosts": sorted({str(entry["host"]) for entry in entries}), "profile": {}})
    end = {"schema": SCHEMA, "state": "done", "gates": PASSED, "ranks": entries, "global_batch": of.global_batch}
    write_json(attempt / "end.json", {**end, "loss_first": 2.5, "loss_last": 0.5})
    return total


def rank_rows(random: np.random.Generator, steps: int, shared: Ints) -> tuple[bytes, bytes]:
    """The CSV of a rank's steps and of its buckets: forward, backward and exposed communication vary, each with its own sum.

    Hidden copies are not measured, as without `copy_ahead`.
    """
    step = np.arange(steps)
    cells = {name: typical + random.integers(0, typical // 2, steps) for name, typical in TYPICAL_NS.items()}
    cells["backward"] += shared
    total = np.sum(list(cells.values()), axis=0)
    start = START_NS + np.cumsum(total) - total
    columns = {"step": step, "flags": np.where(step < WARMUP_STEPS, WARMUP, 0), "start_ns": start, "total_ns": total}
    columns |= {f"{name}_ns": value for name, value in cells.items()} | {"h2d_hidden_ns": np.full(steps, UNKNOWN)}
    columns["loss_e9"] = random.integers(10**9, 3 * 10**9, steps)
    backward = start + cells["data_wait"] + cells["h2d_exposed"] + cells["forward"]
    buckets = bucket_columns(step[::EVERY], backward[::EVERY], (cells["backward"] + cells["comm_exposed"])[::EVERY])
    return csv([columns[name] for name in STEP_COLUMNS], STEP_COLUMNS), csv(buckets, BUCKET_COLUMNS)


def bucket_columns(step: Ints, begin: Ints, lasts: Ints) -> list[Ints]:
    """Evenly over backward and what follows it, each as long as the time between two."""
    index = np.tile(np.arange(BUCKETS), step.size)
    ready = np.repeat(begin, BUCKETS) + index * np.repeat(lasts, BUCKETS) // (BUCKETS + 1)
    return [
        np.repeat(step, BUCKETS),
        index,
        20_000_000 + 1_000_000 * index,
        ready,
        ready + np.repeat(lasts, BUCKETS) // (BUCKETS + 1),
    ]


def csv(columns: list[Ints], names: tuple[str, ...]) -> bytes:
    """Rows whose cells have as many digits are written at once: those with a step of one digit, of two, and so on."""
    blocks = [",".join(names).encode() + b"\n"]
    bounds = np.searchsorted(columns[0], [0, 10, 100, 1000, 10_000, 100_000])
    for low, high in itertools.pairwise(bounds):
        if high > low:
            blocks.append(fixed_width([column[low:high] for column in columns]))
    return b"".join(blocks)


def fixed_width(columns: list[Ints]) -> bytes:
    """Rows of cells that have the same number of digits in every row, except that a total may gain one: then by line."""
    widths = [digits(int(column.max())) for column in columns]
    if any(digits(int(column.min())) != width for column, width in zip(columns, widths, strict=True)):
        cells = (column.tolist() if width else [""] * column.size for column, width in zip(columns, widths, strict=True))
        return "".join(",".join(map(str, row)) + "\n" for row in zip(*cells, strict=True)).encode()
    rows = np.full((columns[0].size, sum(widths) + len(widths)), ord(","), np.uint8)
    at = 0
    for column, width in zip(columns, widths, strict=True):
        rest, end = column, at + width
        while end > at:
            rest, four = np.divmod(rest, 10_000)
            taken = min(4, end - at)
            rows[:, end - taken : end] = DIGITS[four][:, 4 - taken :]
            end -= taken
        at += width + 1
    rows[:, -1] = ord("\n")
    return rows.tobytes()


def digits(number: int) -> int:
    return 0 if number == UNKNOWN else len(str(number))
