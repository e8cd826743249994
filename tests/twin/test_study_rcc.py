"""The rcc study from sweep to figures on a real Slurm: the commands of the README, on CPUs, cut short by --set."""

from __future__ import annotations


import shutil
from pathlib import Path

import pytest

from tests.twin.twin import Twin
from tests.twin.userland import User

JOBS = Path(__file__).parent.parent.parent / "jobs"

CUT = [
    *("--set", "device=cpu", "--set", "repeat=1", "--set", "workload.data.copies=2", "--set", "workload.batch_per_gpu=32"),
    *("--set", "measure.steps=12", "--set", "measure.warmup_steps=3", "--set", "workload.loader_workers_per_rank=0"),
    *("--set", "layout.physical_cores_per_rank=1", "--set", "slurm.walltime_min=10", "--set", "measure.evaluate=true"),
    *("--group", "nodes", "--group", "nodes-1-gpu", "--where", "layout.nodes in [1, 2, 4]"),
]

SHAPES = {(1, 1), (1, 4), (2, 1), (2, 4), (4, 1)}


@pytest.fixture(scope="module")
def user(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has prepared a small bigMNIST and copied the sweep."""
    user = User(rcc_twin, tmp_path_factory.mktemp("user"))
    shutil.copy(JOBS / "rcc-bigmnist.yaml", user.home)
    user.hpcddp("data", "prepare", "bigmnist", "--root", "bigmnist", "--copies", 2, "--digits", "sklearn")
    return user


@pytest.fixture(scope="module")
def arguments(user: User) -> list[str]:
    """The sweep, cut short, on this data; 16 ranks on four nodes are too many for this machine."""
    data = ("--set", f"workload.data.root={user.home}/bigmnist")
    return ["rcc-bigmnist.yaml", *CUT, *data, "--where", "layout.nodes != 4 and layout.gpus_per_node in [1, 4]"]


@pytest.fixture(scope="module")
def finished(user: User, arguments: list[str]) -> User:
    """The study, submitted and run to its end."""
    said = user.hpcddp("submit", *arguments, "-y")
    assert "submitted    4 jobs" in said.stdout
    user.twin.wait_jobs(200)
    assert user.failures() == {}
    return user


def test_x(finished: User) -> None:
    print(finished.hpcddp("status", ".").stdout)
    print(finished.hpcddp("analyze", ".").stdout)
