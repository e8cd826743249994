"""The marconi100 study from sweep to figures on a real Slurm, on up to 16 nodes, CPUs and a small tree of JPEGs."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from tests.data.files import write_imagenet
from tests.twin.twin import Twin
from tests.twin.userland import User

pytestmark = pytest.mark.soak

JOBS = Path(__file__).parent.parent.parent / "jobs"

CUT = [
    *("--group", "nodes", "--set", "device=cpu", "--set", "repeat=1", "--set", "workload.batch_per_gpu=1"),
    *("--set", "workload.loader_workers_per_rank=0", "--set", "layout.physical_cores_per_rank=1"),
    *("--set", "measure.warmup_steps=1", "--set", "measure.steps=2"),
]


@pytest.fixture(scope="module")
def user(marconi100_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has ImageNet's folders with a few pictures, and the sweep; $CINECA_SCRATCH is set, as on the machine."""
    user = User(marconi100_twin, tmp_path_factory.mktemp("user"), {"CINECA_SCRATCH": str(tmp_path_factory.mktemp("scratch"))})
    write_imagenet(Path(user.variables["CINECA_SCRATCH"]) / "imagenet", per_class=24)
    shutil.copy(JOBS / "marconi100-resnet50.yaml", user.home)
    return user


def submit(user: User, *settings: str, jobs: int) -> None:
    said = user.hpcddp("submit", "marconi100-resnet50.yaml", *CUT, *settings, "-y")
    assert f"submitted    {jobs} jobs" in said.stdout
    user.twin.wait_jobs(540)
    assert user.failures() == {}


def shapes(user: User, runs: str) -> set[tuple[int, int]]:
    """(nodes, ranks per node) of every row of the scaling table; every run has passed its gates."""
    assert "runs pass" in user.hpcddp("analyze", runs).stdout
    rows = csv.DictReader((user.home / runs / "marconi100-resnet50/report/scaling.csv").read_text(encoding="utf-8").splitlines())
    return {(int(row["nodes"]), int(row["gpus_per_node"])) for row in rows}


@pytest.mark.parametrize("sizes", [(1, 2), pytest.param((1, 2, 4, 8, 16), marks=pytest.mark.soak)])
def test_a_rank_on_each_node(user: User, sizes: tuple[int, ...]) -> None:
    """ResNet-50: every job COMPLETED, all in one table."""
    runs = f"wide{max(sizes)}"
    submit(
        user, *("--set", "layout.gpus_per_node=1", "--where", f"layout.nodes <= {max(sizes)}"), "--runs", runs, jobs=len(sizes)
    )
    assert shapes(user, runs) == {(nodes, 1) for nodes in sizes}


def test_four_ranks_a_node(user: User) -> None:
    """ResNet-18 with four ranks on each of one and two nodes."""
    submit(user, "--set", "workload.model=resnet18", "--where", "layout.nodes <= 2", "--runs", "deep", jobs=2)
    assert shapes(user, "deep") == {(nodes, 4) for nodes in (1, 2)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["account=other"], "account `other` is not yours to charge; Slurm lists proj"),
        (["layout.nodes=17"], "17 nodes asked for, at most 16 allowed"),
        (["layout.gpus_per_node=5"], "layout.gpus_per_node is 5: a node of type ac922 of marconi100 has 4 GPUs"),
        (["slurm.qos=m100_qos_dbg", "slurm.walltime_min=180"], "slurm.walltime_min is 180, at most 120 minutes allowed"),
        (["slurm.mem_mb=300000"], "slurm.mem_mb is 300000: Slurm gives at most 246000 MB"),
    ],
)
def test_refused_before_slurm(user: User, settings: list[str], message: str) -> None:
    """What the cluster would not give is refused by hpcddp itself, naming value and limit; Slurm sees nothing."""
    before = len(user.twin.sacct())
    changes = [text for setting in settings for text in ("--set", setting)]
    group = ["--group", "nodes" if "layout.gpus_per_node=5" in settings else "workers"]
    said = user.hpcddp("submit", "marconi100-resnet50.yaml", *group, *changes, "--runs", "refused", "-y", exit_code=2)
    assert message in said.stderr
    assert len(user.twin.sacct()) == before


def test_slurm_itself_would_refuse(user: User) -> None:
    """The same five on Slurm's own side: `sbatch --test-only` takes none of them."""
    good = ["--account=proj", "--partition=m100_usr_prod", "--time=10", "--nodes=1", "--gres=gpu:4", "--mem=1000"]
    assert user.twin.run(["sbatch", "--test-only", *good, "--wrap=true"], check=False).returncode == 0
    for bad in (
        ["--account=other"],
        ["--nodes=17"],
        ["--gres=gpu:5"],
        ["--qos=m100_qos_dbg", "--time=180"],
        ["--mem=300000"],
    ):
        assert user.twin.run(["sbatch", "--test-only", *good, *bad, "--wrap=true"], check=False).returncode != 0, bad
