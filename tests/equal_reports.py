"""Whether studies analyze to the numbers that an earlier commit gave: `python -m tests.equal_reports COMMIT RUNS...`.

Each folder of runs, or bundle, is copied and analyzed by both; every key that both reports have must be equal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
Json = dict[str, "Json"] | list["Json"] | str | float | bool | None

OF_THE_PROGRAM = {"hpcddp", "report"}
"""Keys that say which version wrote the report, and where."""


def main(commit: str, *runs: str) -> int:
    """0 where all are equal."""
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "tree"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, earlier], check=True)
        subprocess.run(["git", "checkout", "--quiet", commit], cwd=earlier, check=True)
        for number, each in enumerate(map(Path, runs)):
            before, now = (_reports(each, tree, Path(folder, f"{number}-{tree.name}")) for tree in (earlier, ROOT))
            if before.keys() != now.keys():
                raise SystemExit(f"{each}: reports of {sorted(before)} before, of {sorted(now)} now")
            for study, report in before.items():
                different = sorted(set(_different(report, now[study], "")))
                differing += any(not line.startswith(("gone", "new")) for line in different)
                print(f"{study}: {len(different) or 'no'} differences", *different, sep="\n    ", flush=True)
    return int(differing > 0)


def _reports(runs: Path, tree: Path, folder: Path) -> dict[str, Json]:
    """report.json by study."""
    if runs.is_dir():
        shutil.copytree(runs, folder / "runs", ignore=shutil.ignore_patterns("report"))
    else:
        with tarfile.open(runs) as bundle:
            bundle.extractall(folder / "runs", filter="data")
    command = [sys.executable, "-m", "hpcddp", "analyze", folder / "runs"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, check=False)
    files = sorted((folder / "runs").rglob("report/report.json"))
    if not files:
        raise SystemExit(f"{runs} has no report by {tree}: {done.stderr.decode()}")
    return {file.parents[1].name: json.loads(file.read_text()) for file in files}


def _different(before: Json, now: Json, where: str) -> Iterator[str]:
    """Where they differ, lists by their type; words of a key that one of them lacks."""
    if isinstance(before, dict) and isinstance(now, dict):
        yield from (f"gone: {where}.{key}" for key in before.keys() - now.keys())
        yield from (f"new: {where}.{key}" for key in now.keys() - before.keys())
        for key in (before.keys() & now.keys()) - OF_THE_PROGRAM:
            yield from _different(before[key], now[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for one, other in zip(before, now, strict=True):
            yield from _different(one, other, f"{where}[]")
    elif before != now:
        yield f"{where}: {json.dumps(before)[:200]} before, {json.dumps(now)[:200]} now"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
