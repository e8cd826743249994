"""The script of docs/probe.md runs as it is written, and its commands give a scaling study."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddp.analysis.report.api import analyze
from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from hpcddp.probe.measurement import measure
from tests.analysis.conftest import undrawn

__all__ = ["scripts", "undrawn"]  # the second is a fixture

PAGE = Path(__file__).parents[2] / "docs" / "probe.md"


FEWER = "warmup_steps=3, steps=12"


def scripts() -> dict[str, str]:
    """The page's, by the heading that they stand under; with fewer steps."""
    sections = re.split(r"^##+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {section.splitlines()[0]: re.findall(r"```python\n(.*?)```", section, re.DOTALL) for section in sections}
    return {name: _shorter(text) for name, texts in found.items() for text in texts}


def _shorter(script: str) -> str:
    given = re.sub(r"warmup_steps=\d+, steps=\d+", FEWER, script)
    return given if FEWER in given else re.sub(r"(samples_per_step=[^)]*)\)", rf"\1, {FEWER})", given)


def run(command: str, folder: Path) -> str:
    """What it prints, run there."""
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command.split(), cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_the_script_and_its_commands(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(scripts()["# Measuring a training loop of your own"])
    commands = re.findall(r"^    ((?:python|torchrun|hpcddp) [^|\n]*)$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["python", "torchrun", "hpcddp"]
    assert "1 x 2" in [run(command, tmp_path) for command in commands][-1]
    found = load_study(single_study(tmp_path / "jobs"))
    assert [run.state for run in found.runs] == ["counts", "counts"]


@pytest.mark.soak
@pytest.mark.parametrize("framework", ["Lightning", "transformers", "Accelerate"])
def test_frameworks(tmp_path: Path, framework: str, undrawn: None) -> None:
    (tmp_path / "train.py").write_text(scripts()[framework])
    run("torchrun --nproc-per-node 2 train.py", tmp_path)
    (measured,) = load_study(single_study(tmp_path / "jobs")).runs
    assert (measured.state, measured.reason, measured.steady_steps) == ("counts", None, 12)
    assert min((measured.part_ns or {})[part] or 0 for part in ("data_wait", "forward", "backward", "optimizer")) > 0
    assert measured.exchange is not None
    (report,) = analyze(tmp_path / "jobs")
    assert "1 x 2" in report.text


def test_every_argument_is_explained() -> None:
    named = re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert set(measure.__annotations__) - {"model", "optimizer", "return"} <= set(named)
