"""How long `hpcddp analyze` takes for 50 million step records: `python -m tests.bench.analyze_50m`.

64 ranks x 39 runs x 20,000 steps, five bucket rows for one step in ten: 7 GB, written in a folder that is removed. The whole
command on two processors, start-up, figures and report included, once when nothing is known of the records, and once more.

pandas reads the rows. Two readers were tried before, each beside pandas on one machine: functions that numba compiled to a
parser of our own (14.7 s of processor time against 34.2 s for this study, 580 lines of code and tests), and polars (15.5 s
against 15.8 s on two quiet processors, 4.7 s against 5.3 s for 12 runs; its threads do not survive a fork).

Beside it, against no bound, what a person would write with pandas: the mean over ranks of what the steps took them, an interval
of it, a typical step, the breakdown, of a part of the runs and scaled up. Like is compared with like: how many times faster is
told of a process that reads all the runs for the same numbers and writes no report, in turns with pandas (the median of ROUNDS),
one start-up included in both; of the complete command, too.

The records are kept in memory (/dev/shm) where there is enough of it, so that no disk is measured; else in the temporary folder,
or where `--folder` says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.run_root import Study
from tests.bench.step_records import Size, write_records

FIRST_S, SECOND_S, PEAK_GIB = 20.0, 1.5, 3.0
"""Bounds."""

ROUNDS = 3
CORES = 2
BYTES_PER_RECORD = 145
"""A step's row and its share of bucket rows, rounded up."""

MEMORY = Path("/dev/shm")

PANDAS = """
import sys, numpy as np, pandas as pd
from pathlib import Path
def read(attempt, kind):
    files = sorted(attempt.glob(f"ranks/*.{kind}.csv"))
    return pd.concat(pd.read_csv(file).assign(rank=rank) for rank, file in enumerate(files))
for attempt in map(Path, sys.argv[1:]):
    steps = read(attempt, "steps")
    steady = steps[steps["flags"] == 0]
    by_step = steady.groupby("step")
    over_ranks = by_step[[name for name in steady if name.endswith("_ns")]].mean()
    lasted, parts = over_ranks["total_ns"].to_numpy(), over_ranks.mean()
    step = steady.groupby("rank")["total_ns"].sum().mean() / lasted.size
    typical = np.quantile(lasted, [0.05, 0.5, 0.95, 0.99])
    draw = np.random.default_rng(1)
    resampled = [np.mean(draw.choice(lasted, lasted.size)) for _ in range(1000)]
    travels = read(attempt, "buckets").groupby(["step", "index"]).agg(begin=("ready_ns", "max"), end=("done_ns", "max"))
    print(attempt.name, step, typical, np.quantile(resampled, [0.025, 0.975]), parts["forward_ns"], len(travels))
"""
"""Without checksums, clock offsets, or what verdicts and figures need."""

READING = """
import sys
from pathlib import Path
from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import Study
for run in load_study(Study(Path(sys.argv[1])), Path(sys.argv[2])).runs:
    print(run.name, run.step_ns, run.step_ci_percent, run.part_ns["forward"], run.exchange.transfer_ns)
"""
"""As `hpcddp analyze` reads, in a folder for what is kept that knows nothing yet."""


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
    parser.add_argument("--part", type=int, default=2, help="runs that pandas reads")
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
        result = summary(measured(study, chosen.runs, chosen.part), size)
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


@dataclass(frozen=True)
class Measured:
    first: Cost
    second: Cost
    reading_s: list[float]
    pandas_s: list[float]
    """For all runs, as scaled up."""


def measured(study: Study, runs: int, part: int) -> Measured:
    """Prints a line for each process."""
    analyze = [sys.executable, "-m", "hpcddp", "analyze", str(study.folder)]
    print("              wall s   CPU s  peak GiB", flush=True)
    first, second = shown("first", analyze), shown("second", analyze)
    attempts = sorted(str(path) for path in study.folder.glob("*/r1/*"))[:part]
    reading_s, pandas_s = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            reading_s.append(shown("reading", [sys.executable, "-c", READING, str(study.folder), cache]).wall_s)
        start_s = shown("pandas, none", [sys.executable, "-c", PANDAS]).wall_s
        part_s = shown(f"pandas, {len(attempts)} of {runs}", [sys.executable, "-c", PANDAS, *attempts]).wall_s
        pandas_s.append(start_s + (part_s - start_s) * runs / len(attempts))
    return Measured(first, second, reading_s, pandas_s)


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


def summary(found: Measured, size: Size) -> dict[str, object]:
    pandas_s = statistics.median(found.pandas_s)
    times_pandas = statistics.median(pandas / ours for pandas, ours in zip(found.pandas_s, found.reading_s, strict=True))
    figures = {
        "first_s": round(found.first.wall_s, 2),
        "second_s": round(found.second.wall_s, 2),
        "peak_gib": round(found.first.peak_gib, 2),
        "times_pandas": round(times_pandas, 1),
        "times_pandas_with_report": round(pandas_s / found.first.wall_s, 1),
    }
    same = found.first.said == found.second.said
    holds = found.first.wall_s < FIRST_S and found.second.wall_s < SECOND_S and found.first.peak_gib < PEAK_GIB
    return {
        "bench": "analyze_50m",
        "records": size.records,
        **figures,
        "same_text": same,
        "bounds": {"first_s": FIRST_S, "second_s": SECOND_S, "peak_gib": PEAK_GIB},
        "holds": same and holds,
    }


if __name__ == "__main__":
    sys.exit(main())
