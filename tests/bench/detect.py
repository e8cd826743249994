"""How long `hpcddp clusters detect` takes for a cluster of 1,000 nodes: `python -m tests.bench.detect`.

Slurm's commands are stand-ins that answer at once, with four kinds of nodes; so this is hpcddp's own part,
Python's start included.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.detect.given_live import NODES as LINES
from tests.detect.given_live import answers

NODES = 1000
ROUNDS = 7
BOUND_S = 2.0


def main() -> int:
    """Prints one line of JSON; 1 where the bound does not hold."""
    with tempfile.TemporaryDirectory() as scratch:
        env = stand_in(Path(scratch))
        seconds = [detect_s(env) for _ in range(ROUNDS + 1)][1:]  # the first one warms caches
    result = {
        "bench": "detect",
        "nodes": NODES,
        "median_s": round(statistics.median(seconds), 3),
        "worst_s": round(max(seconds), 3),
        "bound_s": BOUND_S,
    }
    print(json.dumps(result))
    return 0 if statistics.median(seconds) < BOUND_S else 1


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


if __name__ == "__main__":
    sys.exit(main())
