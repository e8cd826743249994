"""The shipped script of one's own and its sweep: on two ranks by torchrun, and as a sweep on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from tests.probe.small_lm import ARGUMENTS, SETTINGS

JOBS = Path(__file__).parents[2] / "jobs"


def run(folder: Path, *command: str) -> None:
    """There; it must succeed."""
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(measured: Run) -> None:
    """It counts, and has tokens and operations: six for each of the 4,288 parameters that multiply, twelve for each position."""
    assert (measured.state, measured.reason, measured.steady_steps) == ("counts", None, 12)
    width, length = ARGUMENTS["width"], ARGUMENTS["length"]
    multiplying = 12 * width**2 + 13 * width + 2 * width + width * ARGUMENTS["vocabulary"]
    per_token = 6 * multiplying + 12 * width * length
    assert (measured.used.tokens_per_sample, measured.used.flops_per_sample) == (length, length * per_token)


@pytest.mark.soak
def test_by_torchrun(tmp_path: Path) -> None:
    """Without a sweep."""
    words = [word for name, value in ARGUMENTS.items() for word in (f"--{name}", str(value))]
    text = (JOBS / "train_lm.py").read_text()
    (tmp_path / "train_lm.py").write_text(text.replace("flops_per_step=flops", "flops_per_step=flops, warmup_steps=3, steps=12"))
    run(tmp_path, "torchrun", "--nproc-per-node", "2", "train_lm.py", *words)
    (measured,) = load_study(single_study(tmp_path / "jobs")).runs
    check(measured)


@pytest.mark.dear
def test_by_its_sweep(tmp_path: Path, undrawn: None) -> None:
    """`init` gives both files, to edit; two ranks of this machine; the report has tokens/s."""
    run(tmp_path, "hpcddp", "init", "own-script")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    of_two = ("--cluster", "local", "--group", "in-node", "--where", "ranks <= 2")
    run(tmp_path, "hpcddp", "submit", "own-script.yaml", *of_two, *settings, "--wait", "--yes")
    found = load_study(single_study(tmp_path / "own-script")).runs
    assert sorted(measured.point.ranks for measured in found if measured.point) == [1, 2]
    for measured in found:
        check(measured)
    (report,) = analyze(tmp_path / "own-script")
    assert "tokens/s" in report.text
