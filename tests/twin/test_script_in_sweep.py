"""A training script of the user's own in a sweep, on a real Slurm: two nodes, told to stop, requeued, analyzed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from tests.twin.daemons import wait_until
from tests.twin.twin import Twin
from tests.twin.userland import PATIENCE_S, User, counted_steps, read, wait_for_steps

pytestmark = pytest.mark.soak

SWEEP = """
schema: 1
cluster: rcc
device: cpu
workload: {script: src/train.py, args: {width: 8}, samples_per_step: 4}
layout: {nodes: 2, gpus_per_node: 2, physical_cores_per_rank: 1}
measure: {warmup_steps: 4, steps: 30, resume: true, telemetry_hz: 0, comm: on}
slurm: {walltime_min: 10}
"""

SCRIPT = """
import argparse
import os
import signal
import time

import torch
import torch.distributed as dist

from hpcddp.probe import measure
from nets import network

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = network(parser.parse_args().width)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first = not int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def save(folder):
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), folder / "last.pt")


with measure(model, optimizer, samples_per_step=4, save_checkpoint=save) as steps:
    if steps.checkpoint_dir is not None:
        net.load_state_dict(torch.load(steps.checkpoint_dir / "last.pt"))
    for number, batch in enumerate(steps([torch.randn(4, 8)] * 99)):
        loss = steps.loss(model(batch).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.55 if first else 0)
        while first and number == 8 and signal.SIGUSR2 not in signal.sigpending():
            time.sleep(0.01)
dist.destroy_process_group()
"""
"""Ranks ask what to do after each step of the first attempt, and wait in one of them until the signal has reached them."""

NETS = """
import torch


def network(width):
    torch.manual_seed(0)
    return torch.nn.Linear(width, width)
"""


def test_a_script_goes_on_after_a_requeue(rcc_twin: Twin, tmp_path: Path) -> None:
    """Its module travels, also to the attempt after the requeue, whatever becomes of the file; the run counts, with all steps."""
    user = User(rcc_twin, tmp_path)
    (user.home / "src").mkdir()
    for name, text in {"study.yaml": SWEEP, "src/train.py": SCRIPT, "nets.py": NETS}.items():
        (user.home / name).write_text(text, encoding="utf-8")
    user.hpcddp("submit", "study.yaml", "-y")
    (entry,) = user.json("status", "study", exit_code=3)["studies"][0]["runs"]
    job, run_dir = entry["job"], user.home / "study" / entry["label"] / "r1"
    wait_for_steps(user, run_dir / f"{job}.0")
    (user.home / "nets.py").unlink()
    user.twin.run(["scancel", "--signal=USR2", job])
    user.twin.wait_jobs(PATIENCE_S)
    wait_until(lambda: not user.failures(), [], "the last end of the job in sacct", PATIENCE_S, lambda: str(user.failures()))
    attempts = [run_dir / f"{job}.{restart}" for restart in (0, 1)]
    ends = [read(attempt / "end.json") for attempt in attempts]
    assert [end["state"] for end in ends] == ["interrupted", "done"]
    assert ends[0]["reason"].endswith("the job is requeued and goes on from there")
    assert counted_steps(run_dir, attempts[-1]) == list(range(34))
    (run,) = load_study(single_study(user.home / "study")).runs
    assert (run.state, run.reason, run.restarts) == ("counts", None, 1)
    assert run.exchange is not None
    assert run.point is not None
    assert (run.point.workload.model, run.point.layout.nodes) == ("train:Linear", 2)
    (study,) = user.json("status", "study")["studies"]
    assert [each["phase"] for each in study["runs"]] == ["done"]
