"""How long the command line takes to start: `python -m tests.bench.cli_latency`.

hpcddp's wheel is installed in an environment of its own, as users have it (an editable install slows every Python start
there, the bare one too). Medians over rounds in which each command runs once, so that a busy moment hits all alike.
The bare start is `python -c pass` of that environment, without options. torchx, which also turns a job description into
an sbatch script, is measured beside them in its own environment under the cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.fresh_install import build, copy_checkout, install

Commands = dict[str, list[str | Path]]

ROUNDS = 21
BARE = "python -c pass"
RENDER = "hpcddp render --cluster rcc --nodes 4"
BOUNDS = {"hpcddp --help": 7.0, RENDER: 15.0}
"""Command -> how many bare starts it may take."""
TORCHX = "torchx run --dryrun --scheduler slurm dist.ddp -j 4x4 --script train.py"


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
        torchx = torchx_bin()
        if torchx is not None:
            commands[TORCHX] = [torchx / "torchx", *TORCHX.split()[1:]]
        (work / "train.py").touch()
        timings, same_bytes = measure(commands, work)
    print(table(timings))
    if torchx is None:
        print("torchx could not be installed: not measured")
    result = summary(timings, same_bytes)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def torchx_bin() -> Path | None:
    """The bin folder of an environment with torchx, made in the cache folder once; None where that fails."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcddp" / "bench-torchx"
    if not (folder / "bin" / "torchx").exists():
        print(f"installing torchx in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run([folder / "bin" / "pip", "install", "--quiet", "torchx"], check=False)
        if done.returncode != 0:
            return None
    return folder / "bin"


def measure(commands: Commands, folder: Path) -> tuple[Timings, bool]:
    """Seconds per command and round, after one round that warms caches, and whether render's bytes were always the same."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    scripts = set()
    for number in range(ROUNDS + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
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
        "torchx_x_bare": round(timings.ratio(TORCHX), 2) if TORCHX in timings.seconds else None,
        "render_byte_identical": same_bytes,
        "holds": same_bytes and all(timings.ratio(name) <= bound for name, bound in BOUNDS.items()),
    }


if __name__ == "__main__":
    sys.exit(main())
