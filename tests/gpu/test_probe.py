"""Loops and scripts of the user's own on GPUs, and the way of a user from a sweep file to the report."""

from __future__ import annotations

import gzip
import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data.dataloader import DataLoader

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from hpcddp.worker.comm.trace import has_kernels
from tests.gpu import ranks
from tests.gpu.device import Figures, gpu_count, is_real, touches

BATCH = 32

FLOPS = 3 * 2 * (256 * 1024 + 1024 * 10) - 2 * 256 * 1024
"""Of a sample: backward is twice forward, but for the gradients of the batch, which nobody asks for."""


def measured(runs: Path, figures: Figures, device: str, precision: str) -> Run:
    """The one run that counts there, of which every part took time."""
    (run,) = load_study(single_study(runs)).runs
    assert (run.state, run.reason) == ("counts", None)
    assert run.point is not None
    assert (run.point.device, run.point.workload.precision) == (device, precision)
    parts = {name: mean or 0.0 for name, mean in (run.part_ns or {}).items()}
    assert min(parts[name] for name in ("forward", "backward", "optimizer")) > 0
    figures.add("forward_share", parts["forward"] / (run.step_ns or 1.0), most=1.0)
    return run


@pytest.mark.soak
@touches("probe/lightning.py", stand_in="Lightning trains on a processor, in fp32, as in tests/probe")
def test_lightnings_loop(tmp_path: Path, figures: Figures) -> None:
    pytest.importorskip("lightning", reason="needs lightning")
    ranks.values(tmp_path, 1, fit, tmp_path / "runs")
    measured(tmp_path / "runs", figures, *(("cuda", "bf16") if is_real() else ("cpu", "fp32")))


def fit(runs: Path) -> None:
    import lightning

    from hpcddp.probe.lightning import ScalingCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    os.environ["HPCDDP_RUNS"] = str(runs)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    samples = torch.utils.data.TensorDataset(torch.randn(16 * BATCH, 256), torch.randint(10, (16 * BATCH,)))
    callback = ScalingCallback(warmup_steps=ranks.steps(20, 2), steps=ranks.steps(100, 4))
    quiet: Any = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on loaders
        where, precision = ("gpu", "bf16-mixed") if is_real() else ("cpu", "32-true")
        chosen: Any = {"accelerator": where, "precision": precision, **quiet}
        trainer = lightning.Trainer(devices=1, max_epochs=100, callbacks=[callback], **chosen)
        trainer.fit(Model(), DataLoader(samples, BATCH))


SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from hpcddp.probe import measure

dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(f"cuda:{gpu}")
model = DistributedDataParallel(model, device_ids=[gpu])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with measure(model, optimizer, samples_per_step=32) as steps:
    for samples in steps([torch.randn(32, 256)] * 999):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = steps.loss(model(samples.to(f"cuda:{gpu}")).float().square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""

OF_SCRIPT = """
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
    *("worker/script_run.py", "worker/comm/transport.py", "worker/comm/trace.py"),
    *("probe/script_point.py", "probe/profiled_window.py"),
    stand_in="the sweep's device is the processor, where the script's model lies, and NCCL's log is written beforehand",
)
def test_a_script_in_a_sweep(tmp_path: Path, figures: Figures) -> None:
    """One rank for each GPU, by the local runner; a profiler watches further steps, and with several GPUs what they exchange."""
    need("submitit", "click", "jinja2", "yaml")
    (tmp_path / "train.py").write_text(SCRIPT)
    warmup, steps, device = (20, 100, "cuda") if is_real() else (2, 4, "cpu")
    (tmp_path / "own.yaml").write_text(OF_SCRIPT.format(size=gpu_count(), warmup=warmup, steps=steps, device=device))
    hpcddp(tmp_path, "submit", "own.yaml", "--runs", "runs", "--wait", "--yes")
    run = measured(tmp_path / "runs", figures, device, "bf16")
    assert run.used.flops_per_sample == FLOPS  # autograd runs a GPU's backward in a thread of its own
    (attempt,) = (file.parent for file in (tmp_path / "runs" / "own").glob("*/r*/*/end.json"))
    with gzip.open(attempt / "ranks" / "00000.trace.json.gz", "rt") as text:
        assert has_kernels(json.load(text)["traceEvents"]) is is_real()
    end = json.loads((attempt / "end.json").read_text())
    assert len(end["ranks"]) == gpu_count()
    assert (end.get("profiled_exchange") is not None) is (gpu_count() > 1)
    if gpu_count() > 1:  # the script forms its group by itself, before it measures: NCCL's log has begun by then
        transport = json.loads((attempt / "transport.json").read_text(encoding="utf-8"))
        assert (transport["unknown"], sum(transport["in_node"].values()) > 0) == (None, True)


def need(*modules: str) -> None:
    for name in modules:
        pytest.importorskip(name, reason=f"needs {name}")


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


@touches("worker/attempt.py", "worker/training/evaluate.py", stand_in="its ranks have the stand-in for CUDA")
def test_a_study_from_sweep_to_report(tmp_path: Path) -> None:
    need("submitit", "click", "jinja2", "yaml", "pandas", "matplotlib")
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
    path = os.pathsep.join([*([] if is_real() else [str(SITE)]), str(ROOT)])
    settings = {"PYTHONPATH": path, "XDG_CONFIG_HOME": str(folder / "config"), "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", "from hpcddp.cli import main; main()", *arguments]
    env = {**os.environ, **settings}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"hpcddp {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
