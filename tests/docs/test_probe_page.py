"""The script of docs/probe.md runs as it is written, and its commands give a scaling study."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from hpcddp.probe.measurement import measure

PAGE = Path(__file__).parents[2] / "docs" / "probe.md"


def test_the_script_and_its_commands(tmp_path: Path) -> None:
    """One process, then two; both runs count, and analyze knows the efficiency."""
    text = PAGE.read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "train.py").write_text(script.replace("samples_per_step=32", "samples_per_step=32, warmup_steps=5, steps=20"))
    commands = re.findall(r"^    ((?:python|torchrun|hpcddp) [^|\n]*)$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["python", "torchrun", "hpcddp"]
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    said = [subprocess.run(c.split(), cwd=tmp_path, env=variables, capture_output=True, text=True, check=True) for c in commands]
    assert "1 x 2" in said[-1].stdout
    found = load_study(single_study(tmp_path / "jobs"))
    assert [run.state for run in found.runs] == ["counts", "counts"]


def test_every_argument_is_explained() -> None:
    """The table has each but the model and its optimizers."""
    named = re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert set(measure.__annotations__) - {"model", "optimizer", "return"} <= set(named)
