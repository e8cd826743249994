"""A queued job runs the code it was submitted with, by a Python that has torch and nothing of this project."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

import pytest

from tests.fresh_install import copy_checkout
from tests.twin.twin import Twin
from tests.twin.userland import User

PROJECT = (
    "hpcddp",
    "__editable__",
    "submitit",
    "cloudpickle",
    "click",
    "jinja2",
    "yaml",
    "_yaml",
    "pandas",
    "matplotlib",
    "pytest",
)

SWEEP = """
schema: 1
cluster: torch-only.yaml
device: cpu
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
layout: {nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1}
measure: {warmup_steps: 2, steps: 5}
"""


def torch_only(folder: Path) -> Path:
    """An environment whose Python finds torch and what torch needs; nothing that hpcddp is made of."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(PROJECT) and not entry.name.endswith(".pth"):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture
def user(rcc_twin: Twin, tmp_path: Path) -> User:
    """Stands in a checkout of hpcddp, where `-m hpcddp` is that checkout, and has a profile with the bare environment."""
    checkout = copy_checkout(tmp_path / "checkout")
    python = torch_only(tmp_path / "bare")
    profile = (checkout / "clusters" / "rcc.yaml").read_text(encoding="utf-8")
    before, after = profile.split("  modules: ")
    bare = f"{before}  python: {python}\n  {after.partition(chr(10) + '  ')[2]}"
    (checkout / "torch-only.yaml").write_text(bare, encoding="utf-8")
    (checkout / "study.yaml").write_text(SWEEP, encoding="utf-8")
    return User(rcc_twin, checkout)


def test_an_upgrade_while_the_job_waits_changes_nothing(user: User) -> None:
    """Submitted from a checkout that breaks before the job starts: it runs to its end, on what was taken along."""
    job = user.hpcddp("submit", "study.yaml", "-J", "--hold", "-y").stdout.split()[-1]
    for file in (user.home / "hpcddp" / "worker").glob("*.py"):
        file.write_text("raise SystemExit('this is the changed checkout')\n", encoding="utf-8")
    user.twin.run(["scontrol", "release", job])
    user.twin.wait_jobs(120)
    assert user.failures() == {}
    assert [row["JobID"] for row in user.jobs()] == [job]
    (study,) = user.json("status", "study")["studies"]
    assert [run["phase"] for run in study["runs"]] == ["done"]
