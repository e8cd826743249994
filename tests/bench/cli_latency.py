"""How long the command line takes to start: `python -m tests.bench.cli_latency`.

hpcddp's wheel is installed in an environment of its own, as users have it (an editable install slows every Python start
there, the bare one too). Medians over rounds in which each command runs once, so that a busy moment hits all alike.
The bare start is `python -c pass` of that environment, without options.

Then `hpcddp clusters detect` for a cluster of 1,000 nodes: Slurm's commands are stand-ins that answer at once, with four kinds of
nodes; so this is hpcddp's own part, Python's start included.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.detect.given_live import NODES as LINES
from tests.detect.given_live import answers
from tests.machine import build, copy_checkout, install

NODES = 1000
DETECT_ROUNDS = 7
DETECT_BOUND_S = 2.0


def detect() -> dict[str, object]:
    """Seconds of a call, against its bound."""
    with tempfile.TemporaryDirectory() as scratch:
        env = stand_in(Path(scratch))
        seconds = [detect_s(env) for _ in range(DETECT_ROUNDS + 1)][1:]  # the first one warms caches
    median_s = statistics.median(seconds)
    figures = {"median_s": round(median_s, 3), "worst_s": round(max(seconds), 3)}
    return {"bench": "detect", "nodes": NODES, **figures, "bound_s": DETECT_BOUND_S, "holds": median_s < DETECT_BOUND_S}


def stand_in(folder: Path) -> dict[str, str]:
    """The environment in which those commands are Slurm."""
    for command, script in answers(folder).items():
        (folder / command).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        (folder / command).chmod(0o755)
    gpu, cpu = LINES.splitlines()
    kinds = [gpu, cpu, gpu.replace("RealMemory=515000", "RealMemory=1030000"), gpu.replace("gpu:a100:4", "gpu:h100:8")]
    nodes = [re.sub(r"^NodeName=\w+", f"NodeName=n{i:04}", kinds[i % len(kinds)]) for i in range(NODES)]
    (folder / "answer-nodes").write_text("\n".join(nodes), encoding="utf-8")
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def detect_s(env: dict[str, str]) -> float:
    """Seconds of one call."""
    start_s = time.perf_counter()
    command = [sys.executable, "-m", "hpcddp", "clusters", "detect", "--name", "thousand"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    elapsed_s = time.perf_counter() - start_s
    counts = done.stdout.count(" physical_cores:")
    if counts != 4:
        raise SystemExit(f"{counts} node types were described, 4 are there:\n{done.stderr}")
    return elapsed_s


Commands = dict[str, list[str | Path]]

ROUNDS = 21
BARE = "python -c pass"
RENDER = "hpcddp render --cluster rcc --nodes 4"
BOUNDS = {"hpcddp --help": 6.5, RENDER: 13.0}
"""Command -> how many bare starts it may take."""


@dataclass(frozen=True)
class Timings:
    """Seconds per round of each command."""

    seconds: dict[str, list[float]]

    def median_s(self, command: str) -> float:
        return statistics.median(self.seconds[command])

    def ratio(self, command: str) -> float:
        """Median in bare starts."""
        return self.median_s(command) / self.median_s(BARE)


def main() -> int:
    """Prints the table and one line of JSON; 1 where a bound does not hold."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        ours = install(build("wheel", copy_checkout(work / "source"), work / "wheel"), work / "venv")
        commands: Commands = {name: [ours / name.split()[0], *name.split()[1:]] for name in (BARE, *BOUNDS)}
        timings, same_bytes = measure(commands, work)
    print(table(timings))
    result = summary(timings, same_bytes)
    print(json.dumps(result))
    found = detect()
    print(json.dumps(found))
    return 0 if result["holds"] and found["holds"] else 1


def measure(commands: Commands, folder: Path) -> tuple[Timings, bool]:
    """Seconds per command and round, after one round that warms caches, and whether render's bytes were always the same."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    scripts = set()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # templates' too
    for number in range(ROUNDS + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)
            if number > 0:
                seconds[name].append(time.perf_counter() - start)
            if name == RENDER:
                scripts.add(hashlib.sha256(done.stdout).digest())
    return Timings(seconds), len(scripts) == 1


def table(timings: Timings) -> str:
    rows = [f"{'median ms':>9}  {'min ms':>6}  {'x bare':>6}  {'bound':>5}  command ({ROUNDS} rounds)"]
    for name, values in timings.seconds.items():
        bound = f"{BOUNDS[name]:g}" if name in BOUNDS else ""
        median_ms, min_ms = timings.median_s(name) * 1e3, min(values) * 1e3
        rows.append(f"{median_ms:9.1f}  {min_ms:6.1f}  {timings.ratio(name):6.1f}  {bound:>5}  {name}")
    return "\n".join(rows)


def summary(timings: Timings, same_bytes: bool) -> dict[str, object]:
    ratios = {name: {"x_bare": round(timings.ratio(name), 2), "bound": bound} for name, bound in BOUNDS.items()}
    return {
        "bench": "cli_latency",
        "bare_ms": round(timings.median_s(BARE) * 1e3, 1),
        "ratios": ratios,
        "render_byte_identical": same_bytes,
        "holds": same_bytes and all(timings.ratio(name) <= bound for name, bound in BOUNDS.items()),
    }


if __name__ == "__main__":
    sys.exit(main())
