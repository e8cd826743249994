"""The whole way as a user goes it: a sweep file, `submit` on this machine, `status`, `analyze`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches

ROOT = Path(__file__).parent.parent.parent

SITE = Path(__file__).parent / "standin_site"

SWEEP = """
schema: 1
cluster: local
hold: batch_per_gpu
work: steps
workload:
  model: {model}
  data: {{name: {data}}}
  precision: bf16
  batch_per_gpu: {batch}
  loader_workers_per_rank: 1
  copy_ahead: true
points:
  ranks: {{layout.gpus_per_node: {sizes}}}
measure: {{warmup_steps: {warmup}, steps: {steps}, evaluate: true, telemetry_hz: 5}}
repeat: {repeat}
device: cuda
"""


def sweep() -> str:
    sizes = sorted({1, gpu_count()})
    if is_real():
        return SWEEP.format(model="resnet18", data="synthetic-cifar10", batch=256, sizes=sizes, warmup=20, steps=100, repeat=2)
    return SWEEP.format(model="mnist-cnn", data="synthetic-mnist", batch=64, sizes=[1], warmup=2, steps=20, repeat=1)


@touches("hpcddp/worker/attempt.py", "hpcddp/worker/training/evaluate.py", stand_in="its ranks have the stand-in for CUDA")
def test_a_study_from_sweep_to_report(tmp_path: Path) -> None:
    """Every run counts, on as many ranks as GPUs, and the report is there."""
    for name in ("submitit", "click", "jinja2", "yaml", "pandas", "matplotlib"):
        pytest.importorskip(name, reason=f"needs {name}")
    (tmp_path / "study.yaml").write_text(sweep())
    hpcddp(tmp_path, "submit", "study.yaml", "--runs", "runs", "--wait", "--yes")
    hpcddp(tmp_path, "status", "runs/study")
    hpcddp(tmp_path, "analyze", "runs/study")
    report = json.loads((tmp_path / "runs" / "study" / "report" / "report.json").read_text())
    ends = [json.loads(file.read_text()) for file in (tmp_path / "runs" / "study").glob("*/r*/*/end.json")]
    assert len(ends) == (2 * len({1, gpu_count()}) if is_real() else 1)
    assert all(end["state"] == "done" and all(gate["passed"] for gate in end["gates"]) for end in ends)
    assert (tmp_path / "runs" / "study" / "report" / "index.html").is_file()
    assert report["schema"]


def hpcddp(folder: Path, *arguments: str) -> None:
    """The command line in a process of its own, as of this checkout."""
    path = os.pathsep.join([*([] if is_real() else [str(SITE)]), str(ROOT)])
    settings = {"PYTHONPATH": path, "XDG_CONFIG_HOME": str(folder / "config"), "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", "from hpcddp.cli import main; main()", *arguments]
    env = {**os.environ, **settings}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"hpcddp {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
