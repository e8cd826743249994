"""Data on the nodes' own disks under a real Slurm: a copy a node, gone when its run is over, however that ended."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.data.files import write_mnist
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

pytestmark = pytest.mark.soak

MODEL = """
import os
import torch
from torch import nn

class Dies(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.step = nn.Linear(784, 10), 0

    def forward(self, images):
        self.step += 1
        if self.step == 5 and os.environ["SLURM_PROCID"] == "1":
            os.kill(os.getpid(), 9)
        return self.layer(images.flatten(1))

def dies(classes):
    return Dies()
"""

SWEEP = (
    SMALL.replace("cluster: rcc", "cluster: disks.yaml").replace(
        "name: synthetic-mnist", "name: mnist, root: ROOT, stage: tmpdir"
    )
    + """
layout: {nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1, exclusive: false}
baselines: false
measure: {warmup_steps: 1, steps: STEPS, telemetry_hz: 0}
slurm: {walltime_min: 5, mem_mb: 2000, nodelist: "gn[01-02]"}
"""
)


def study(user: User, name: str, steps: int, model: str = "mnist-cnn") -> Path:
    sweep = user.home / f"{name}.yaml"
    text = SWEEP.replace("ROOT", str(user.home / "data")).replace("STEPS", str(steps)).replace("mnist-cnn", model)
    sweep.write_text(text)
    return sweep


def copies(user: User) -> list[str]:
    return sorted(path.name for path in (user.home / "disk").iterdir())


def wait_for_copies(user: User) -> None:
    deadline_s = time.monotonic() + 90
    while not copies(user):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_no_copy_outlives_its_run(rcc_twin: Twin, tmp_path: Path) -> None:
    """A run that is done removes its copies, and the script those of one that failed. What a cancelled one leaves, on a disk
    that is not the job's own, goes with the next run there.
    """
    user = User(rcc_twin, tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / "faulty.py").write_text(MODEL)
    write_mnist(tmp_path / "data", train=2000)
    profile = {"schema": 1, "name": "disks", "title": "disks", "extends": "rcc"}
    disk = {"local_disk_path": str(tmp_path / "disk"), "local_disk_per_job": False}
    facts = {"node_types": dict.fromkeys(rcc_twin.profile.node_types, disk)}
    (tmp_path / "disks.yaml").write_text(json.dumps({**profile, **facts}))

    cancelled = study(user, "cancelled", steps=100_000)
    user.hpcddp("submit", cancelled, "-y")
    wait_for_copies(user)
    user.hpcddp("cancel", cancelled, "-y")

    failing = study(user, "failing", steps=100, model="faulty:dies")
    user.hpcddp("submit", failing, "-y", "--wait", exit_code=1)
    assert copies(user) == []

    done = study(user, "done", steps=10)
    user.hpcddp("submit", done, "-y", "--wait")
    (launch,) = (json.loads(file.read_text()) for file in (tmp_path / "done").glob("n02*/r1/*/launch.json"))
    nodes = launch["data"]["staging"]["nodes"]
    assert sorted(node["host"] for node in nodes) == sorted(launch["hosts"])
    assert len(set(node["folder"] for node in nodes)) == 2
    assert copies(user) == []
