"""Data prepared by a job on a real Slurm: a sweep's jobs wait for it, and start only if it ended well."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

SWEEP = (
    SMALL.replace("name: synthetic-mnist", "name: bigmnist, copies: 1, variants: [plain], root: ROOT")
    + """
layout: {exclusive: false, gpus_per_node: 1, physical_cores_per_rank: 1}
points:
  nodes: {layout.nodes: [1, 2]}
measure: {warmup_steps: 1, steps: 2}
repeat: 1
slurm: {walltime_min: 5, mem_mb: 2000}
"""
)


def _study(user: User, name: str, root: str) -> Path:
    sweep = user.home / f"{name}.yaml"
    sweep.write_text(SWEEP.replace("ROOT", root))
    return sweep


@pytest.mark.soak
def test_runs_start_when_their_data_are_there(rcc_twin: Twin, tmp_path: Path) -> None:
    """One job makes them, and Slurm starts the runs after it; a second `submit` finds them there."""
    user = User(rcc_twin, tmp_path)
    (tmp_path / "data").mkdir()
    sweep = _study(user, "good", str(tmp_path / "data"))
    assert "no data `bigmnist` in" in user.hpcddp("submit", sweep, "-y", exit_code=2).stderr
    user.hpcddp("submit", sweep, "-y", "--prepare", "--wait")
    (study,) = user.json("status", sweep)["studies"]
    (job,) = study["data_jobs"]
    assert (job["phase"], [run["phase"] for run in study["runs"]]) == ("done", ["done"] * 2)
    assert json.loads((tmp_path / "data" / "bigmnist.json").read_text())["copies"] == 1
    assert "nothing to submit" in user.hpcddp("submit", sweep, "-y", "--prepare").stdout


def test_runs_whose_data_could_not_be_made_never_start(rcc_twin: Twin, tmp_path: Path) -> None:
    """Slurm takes them out of the queue, and why they did not run is said; when the data can be made, `submit` starts anew."""
    user = User(rcc_twin, tmp_path)
    sweep = _study(user, "bad", "$NOWHERE/data")
    user.hpcddp("submit", sweep, "-y", "--prepare", "--wait", exit_code=1)
    (study,) = user.json("status", sweep, exit_code=3)["studies"]
    (job,) = study["data_jobs"]
    assert job["phase"] == "failed"
    assert "$NOWHERE is not set in the job" in job["detail"]
    words = f"never started: job {job['job']} did not end well, and it waited for that"
    assert [(run["phase"], run["detail"]) for run in study["runs"]] == [("failed", words)] * 2
    assert not list((tmp_path / "bad").glob("*/r1"))
    places = ("--set", f"workload.data.root={tmp_path}/made")
    again = user.hpcddp("submit", sweep, "-y", "--prepare", "--max-jobs", "1", *places, exit_code=3)
    assert re.search(r"^submitted    1 job    \d+, when \d+ ended well$", again.stdout, re.MULTILINE)
    user.hpcddp("cancel", sweep, "-y")


def test_a_command_of_data_is_a_job(rcc_twin: Twin, tmp_path: Path) -> None:
    """One job, with variables of the job's own in its folder."""
    user = User(rcc_twin, tmp_path, {"SCRATCH": str(tmp_path)})
    small = ("--set", "layout.exclusive=false", "--set", "layout.physical_cores_per_rank=2", "--set", "slurm.mem_mb=4000")
    prepare = ("data", "prepare", "bigmnist", "--root", "$SCRATCH/set", "--copies", "1", "--digits", "sklearn")
    done = user.hpcddp(*prepare, "--cluster", "rcc", *small, "-y", "--wait")
    assert "prepare bigmnist  job " in done.stdout
    assert (tmp_path / "set" / "bigmnist.json").is_file()
    shard = tmp_path / "set" / "train-00000.u8"
    verify = ("data", "verify", "bigmnist", "--root", "$SCRATCH/set", "--cluster", "rcc", *small, "-y", "--wait")
    shard.write_bytes(b"\1" + shard.read_bytes()[1:])
    assert "train-00000.u8" in user.hpcddp(*verify, exit_code=1).stdout
    status = user.hpcddp("status", "jobs", exit_code=3).stdout
    assert status.startswith("data\nprepare bigmnist  job ")
