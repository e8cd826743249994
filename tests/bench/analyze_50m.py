"""How long `hpcddp analyze` takes for 50 million step records: `python -m tests.bench.analyze_50m`.

64 ranks x 39 runs x 20,000 steps, five bucket rows for one step in ten: 7 GB, written in a folder that is removed. The whole
command on two processors, start-up, figures and report included, once when nothing is known of the records, and once more.

pandas reads the rows. Two readers were tried before, each beside pandas on one machine: functions that numba compiled to a
parser of our own (14.7 s of processor time against 34.2 s for this study, 580 lines of code and tests), and polars (15.5 s
against 15.8 s on two quiet processors, 4.7 s against 5.3 s for 12 runs; its threads do not survive a fork).

The records are kept in memory (/dev/shm) where there is enough of it, so that no disk is measured; else in the temporary folder,
or where `--folder` says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
"""Jitter adds less than half of it."""


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
    columns |= {f"{name}_ns": value for name, value in cells.items()}
    columns["loss_e9"] = random.integers(10**9, 3 * 10**9, steps)
    backward = start + cells["data_wait"] + cells["h2d_exposed"] + cells["forward"]
    buckets = bucket_columns(step[::EVERY], backward[::EVERY], (cells["backward"] + cells["comm_exposed"])[::EVERY])
    return csv(columns, STEP_COLUMNS), csv(dict(zip(BUCKET_COLUMNS, buckets, strict=True)), BUCKET_COLUMNS)


def csv(columns: Mapping[str, Ints], names: Sequence[str]) -> bytes:
    """What is not among the columns was not measured."""
    return pd.DataFrame(columns).reindex(columns=[*names], fill_value="").to_csv(index=False, lineterminator="\n").encode()


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


FIRST_S, SECOND_S, PEAK_GIB = 20.0, 1.5, 3.0
"""Bounds."""

CORES = 2
BYTES_PER_RECORD = 145
"""A step's row and its share of bucket rows, rounded up."""

MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Cost:
    """Of a process."""

    wall_s: float
    cpu_s: float
    peak_gib: float
    said: str


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="with 9 GB to spare; by default in memory where there is enough of it")
    parser.add_argument("--runs", type=int, default=39)
    parser.add_argument("--steps", type=int, default=20_000)
    chosen = parser.parse_args()
    size = Size(chosen.runs, chosen.steps)
    needed = 1.2 * BYTES_PER_RECORD * size.records
    folder = chosen.folder or folder_for(needed)
    free = shutil.disk_usage(folder).free
    if free < needed:
        sys.exit(f"{folder} has {free / 1e9:.0f} GB free; name another with --folder")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        study, written = write_records(Path(scratch) / "study", size)
        os.sync()  # else the first analysis waits while the disk still writes them
        where = "memory: no disk is measured" if folder == MEMORY else "a folder whose disk may be measured, too"
        print(f"{size.records:,} step records, {written / 1e9:.1f} GB in {folder}, {where}", flush=True)
        print("              wall s   CPU s  peak GiB", flush=True)
        analyze = [sys.executable, "-m", "hpcddp", "analyze", str(study.folder)]
        result = summary(shown("first", analyze), shown("second", analyze), size)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def folder_for(needed: float) -> Path:
    """MEMORY, if there is room for so many bytes and for what reads them; else the temporary folder."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > needed and available() > needed + 2 * PEAK_GIB * 2**30:
        return MEMORY
    return Path(tempfile.gettempdir())


def available() -> int:
    """Bytes of memory, as Linux estimates them."""
    meminfo = dict(row.split(":") for row in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["MemAvailable"].split()[0]) * 1024


def shown(name: str, command: list[str]) -> Cost:
    found = cost(command)
    print(f"{name:<13} {found.wall_s:7.2f} {found.cpu_s:7.2f} {found.peak_gib:9.2f}", flush=True)
    return found


def cost(command: list[str]) -> Cost:
    """Of a command that succeeds, on CORES processors."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, preexec_fn=lambda: os.sched_setaffinity(0, cores))  # noqa: PLW1509 - no threads here
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode()
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, said)


def summary(first: Cost, second: Cost, size: Size) -> dict[str, object]:
    same = first.said == second.said
    figures = {"first_s": first.wall_s, "second_s": second.wall_s, "peak_gib": first.peak_gib}
    bounds = {"first_s": FIRST_S, "second_s": SECOND_S, "peak_gib": PEAK_GIB}
    return {
        "bench": "analyze_50m",
        "records": size.records,
        **{name: round(figure, 2) for name, figure in figures.items()},
        "same_text": same,
        "bounds": bounds,
        "holds": same and all(figures[name] < bound for name, bound in bounds.items()),
    }


if __name__ == "__main__":
    sys.exit(main())
