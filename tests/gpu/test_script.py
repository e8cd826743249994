"""A script of the user's own in a sweep, on every GPU: it forms its group by NCCL, and its runs count."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hpcddp.worker.comm.trace import has_kernels
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches
from tests.gpu.test_submit import hpcddp

SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from hpcddp.probe import measure

dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
model = DistributedDataParallel(torch.nn.Linear(256, 10).to(f"cuda:{gpu}"), device_ids=[gpu])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with measure(model, optimizer, samples_per_step=32) as steps:
    for samples in steps([torch.randn(32, 256)] * 999):
        loss = steps.loss(model(samples.to(f"cuda:{gpu}")).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""

SWEEP = """
schema: 1
cluster: local
work: steps
workload: {{script: train.py, samples_per_step: 32}}
points:
  ranks: {{layout.gpus_per_node: [{size}]}}
measure: {{warmup_steps: {warmup}, steps: {steps}, comm: check, profile_steps: 3}}
repeat: 1
device: {device}
"""


@touches(
    "hpcddp/worker/script_run.py",
    "hpcddp/probe/profiled_window.py",
    "hpcddp/worker/comm/trace.py",
    stand_in="the sweep's device is the processor, where the script's model lies",
)
def test_a_script_in_a_sweep(tmp_path: Path) -> None:
    """One rank for each GPU, by the local runner; a profiler watches further steps, and with several GPUs what they exchange."""
    for name in ("submitit", "click", "jinja2", "yaml"):
        pytest.importorskip(name, reason=f"needs {name}")
    (tmp_path / "train.py").write_text(SCRIPT)
    warmup, steps = (20, 100) if is_real() else (2, 4)
    device = "cuda" if is_real() else "cpu"
    (tmp_path / "own.yaml").write_text(SWEEP.format(size=gpu_count(), warmup=warmup, steps=steps, device=device))
    hpcddp(tmp_path, "submit", "own.yaml", "--runs", "runs", "--wait", "--yes")
    (trace,) = (tmp_path / "runs" / "own").glob("*/r*/*/ranks/00000.trace.json.gz")
    with gzip.open(trace, "rt") as text:
        events = json.load(text)["traceEvents"]
    assert has_kernels(events) is is_real()
    (end,) = [json.loads(file.read_text()) for file in (tmp_path / "runs" / "own").glob("*/r*/*/end.json")]
    assert (end["state"], len(end["ranks"])) == ("done", gpu_count())
    assert [gate["name"] for gate in end["gates"] if not gate["passed"]] == []
    assert (end.get("profiled_exchange") is not None) is (gpu_count() > 1)
