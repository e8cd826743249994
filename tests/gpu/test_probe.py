"""A loop of the user's own on GPUs: the probe's marks are events in the stream, and DDP's exchange is NCCL's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from hpcddp.probe import measure
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.gpu import ranks
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures

BATCH = 32

FLOPS = 3 * 2 * (256 * 1024 + 1024 * 10) - 2 * 256 * 1024
"""Of a sample: backward is twice forward, but for the gradients of the batch, which nobody asks for."""


@touches("hpcddp/probe/script_point.py", stand_in="the model lies in the host's memory, and parts are the host's time")
def test_a_loop_of_ones_own(tmp_path: Path, figures: Figures) -> None:
    """The run counts; every part took time, and the step's parts are not above it."""
    ranks.values(tmp_path, gpu_count(), own_loop, tmp_path / "runs")
    (run,) = load_study(single_study(tmp_path / "runs")).runs
    assert (run.state, run.reason) == ("counts", None)
    assert run.point is not None
    assert (run.point.device, run.point.workload.precision) == ("cuda" if is_real() else "cpu", "bf16")
    assert run.used.flops_per_sample == FLOPS  # autograd runs a GPU's backward in a thread of its own
    parts = {name: mean or 0.0 for name, mean in (run.part_ns or {}).items()}
    assert min(parts[name] for name in ("forward", "backward", "optimizer")) > 0
    figures.add("forward_share", parts["forward"] / (run.step_ns or 1.0), most=1.0)


def own_loop(runs: Path) -> None:
    """As a user has it, under autocast."""
    os.environ["HPCDDP_RUNS"] = str(runs)
    group = join(this_rank("local"), "cuda")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).to(group.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches: list[Any] = [torch.randn(BATCH, 256) for _ in range(4)]
    count: dict[str, Any] = {"warmup_steps": ranks.steps(20, 2), "steps": ranks.steps(100, 4)}
    with measure(model, optimizer, samples_per_step=BATCH, **count) as steps:
        for samples in (each for _ in range(40) for each in steps(batches)):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = steps.loss(model(samples.to(group.device)).float().square().mean())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    group.leave()
