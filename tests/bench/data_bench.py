"""Whether `hpcddp bench data` says what runs load: `python -m tests.bench.data_bench`.

A point with `measure.input: io` on this machine, one rank with one loader process, pictures in tar files that are in memory. In
each of several rounds the benchmark and a run of the point follow each other; a figure is the median over rounds of a ratio
within the round, since other work on the machine slows neighbours alike. tests/twin/test_bench_data.py has the same with two
ranks on a Slurm, from a folder of a given rate.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hpcddp.data.writing.pack import pack_imagenet
from tests.bench.jpegs import write_photographs

PICTURES, BATCH, STEPS = 2000, 8, 200
BOUND_PERCENT = 5.0
"""Between the two, at most."""

SWEEP = f"""
schema: 1
cluster: local
device: cpu
workload: {{model: resnet18, data: {{name: imagenet, root: tars}}, batch_per_gpu: {BATCH}, loader_workers_per_rank: 1}}
points: {{one: {{measure.input: [io]}}}}
baselines: false
measure: {{warmup_steps: 10, steps: {STEPS}}}
"""


def hpcddp(folder: Path, *arguments: object) -> None:
    """In a process of its own; CalledProcessError where it fails."""
    words = [sys.executable, "-m", "hpcddp", *map(str, arguments)]
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def benched(folder: Path) -> float:
    """Samples a second with a warm cache, by a new benchmark."""
    hpcddp(folder, "bench", "data", "small.yaml", "--workers", 1, "--seconds", 3, "--wait", "-y")
    newest = max(folder.glob("small/bench-data/*/bench-data.json"), key=lambda file: file.stat().st_mtime_ns)
    rates = json.loads(newest.read_text(encoding="utf-8"))["rates"]
    return next(float(rate["samples_per_s"]) for rate in rates if rate["cache"] == "warm")


def loaded(folder: Path, run: int) -> float:
    """Samples a second of another run."""
    hpcddp(folder, "submit", "small.yaml", "--set", f"repeat={run}", "--wait", "-y")
    hpcddp(folder, "analyze", "small")
    rows = list(csv.DictReader((folder / "small" / "report" / "runs.csv").read_text(encoding="utf-8").splitlines()))
    return float(next(row["samples_per_s"] for row in rows if int(row["run"]) == run))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photographs(folder / "loose", PICTURES)
        pack_imagenet(folder / "loose", folder / "tars", progress=lambda done, total: None)
        (folder / "small.yaml").write_text(SWEEP, encoding="utf-8")
        pairs = [(benched(folder), loaded(folder, run)) for run in range(1, rounds + 1)]
    for by_bench, by_run in pairs:
        print(f"benchmark {by_bench:,.0f} samples/s, run {by_run:,.0f}: {by_bench / by_run - 1:+.1%}")
    apart_percent = abs(statistics.median(by_bench / by_run for by_bench, by_run in pairs) - 1) * 100
    holds = apart_percent <= BOUND_PERCENT
    print(json.dumps({"apart_percent": round(apart_percent, 2), "bound_percent": BOUND_PERCENT, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
