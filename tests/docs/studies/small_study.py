"""Runs the small commands of a study's page on this machine, and writes docs/studies/STUDY.json from what they left.

python -m tests.docs.studies.small_study rcc-mnist
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hpcddp.core.point import flat_keys, point_from_dict
from tests.docs.studies.text import PAGES, small_commands

Done = subprocess.CompletedProcess[str]

ROW = (
    *("nodes", "gpus_per_node", "ranks", "batch_per_gpu", "n", "samples_per_s", "samples_per_s_low", "samples_per_s_high"),
    *("step_mean_s", "data_wait_mean_s", "comm_exposed_mean_s", "efficiency_1gpu"),
)
"""Of a point of report.json, what a page shows or its text may name."""

SIZES = {"layout.nodes", "layout.gpus_per_node"}
"""Keys that a row has as columns of their own."""


def run_small(study: str, folder: Path) -> list[Done]:
    """Copies the sweep into the folder and runs the page's small commands there, as they are written."""
    return [run_command(command, folder) for command in (f"hpcddp init {study}", *small_commands(study))]


def run_command(command: str, folder: Path) -> Done:
    """One command of a page in that folder, by a shell that finds this checkout's hpcddp."""
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False)


def result_of(report: Path) -> dict[str, Any]:
    """The rows, sentences and verdicts of a report.json, without what differs by machine only."""
    found = json.loads(report.read_text(encoding="utf-8"))
    flat = {point["label"]: _flat(report.parents[1], point["label"]) for point in found["points"]}
    varied = {key for key in next(iter(flat.values())) if len({str(each[key]) for each in flat.values()}) > 1} - SIZES
    rows = [{"what": _what(flat[point["label"]], varied), **{key: point[key] for key in ROW}} for point in found["points"]]
    verdicts = [{key: verdict[key] for key in ("name", "where", "evidence")} for verdict in found["verdicts"]]
    return {"rows": rows, "sentences": found["sentences"], "verdicts": verdicts}


def machine() -> str:
    """Processors, software, and how busy it was: equal numbers are not to be expected on another one."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    import torch

    cores = len(os.sched_getaffinity(0))
    busy = f"load {os.getloadavg()[0]:.0f} before it began"
    return f"{model[1] if model else platform.machine()}, {cores} cores, no GPU, torch {torch.__version__}, {busy}"


def _flat(study: Path, label: str) -> dict[str, object]:
    (file,) = study.glob(f"{label}/point.json")
    return flat_keys(point_from_dict(json.loads(file.read_text(encoding="utf-8"))["point"]))


def _what(flat: dict[str, object], varied: set[str]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {flat[key]}" for key in flat if key in varied)


def main() -> None:
    """Measures the studies that are named, one after another."""
    for study in sys.argv[1:]:
        hardware = machine()
        with tempfile.TemporaryDirectory() as folder:
            for done in run_small(study, Path(folder)):
                if done.returncode:
                    sys.exit(f"{done.args[-1]}\n{done.stdout}{done.stderr}")
            found = result_of(Path(folder) / study / "report" / "report.json")
        result = {"date": datetime.date.today().isoformat(), "hardware": hardware, **found}
        (PAGES / f"{study}.json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
