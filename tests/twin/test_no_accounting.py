"""A cluster that keeps no accounts of its jobs (no slurmdbd): submit, status and wait work by squeue and the records alone.

It has no cgroups either: of a job that takes more memory than it asked for, Slurm says FAILED, and slurmstepd why in the log.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from tests.fresh_install import CHECKOUT
from tests.twin.shape import Site
from tests.twin.twin import Twin, Twins
from tests.twin.userland import SMALL, User

pytestmark = pytest.mark.soak

SWEEP = (
    SMALL
    + """
layout: {exclusive: false, physical_cores_per_rank: 1}
points:
  ranks: {layout.gpus_per_node: [1]}
measure: {warmup_steps: 1, steps: 3}
repeat: 1
slurm: {walltime_min: 5, mem_mb: 2000}
"""
)

GREEDY = (
    SWEEP.replace("mnist-cnn", '"troubled:greedy"').replace("steps: 3", "steps: 100000").replace("mem_mb: 2000", "mem_mb: 1000")
)


@pytest.fixture(scope="module")
def user(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    twins.close()
    site = Site(accounting=False, memory_kill=True)
    with Twin(load_profile("rcc"), tmp_path_factory.mktemp("bare"), nodes=1, site=site) as twin:
        yield User(twin, tmp_path_factory.mktemp("user"))


def phases(user: User) -> list[tuple[str, str | None]]:
    (study,) = user.json("status", "sweep", exit_code=3)["studies"]
    return [(run["phase"], run["detail"]) for run in study["runs"]]


def test_submit_status_and_wait(user: User) -> None:
    """A held run is queued and, cancelled, has failed; submitted again it is waited for and done; then nothing is left."""
    assert user.twin.run(["sacct"], check=False).returncode != 0
    (user.home / "sweep.yaml").write_text(SWEEP)
    user.hpcddp("submit", "sweep.yaml", "-y", "-J", "--hold")
    assert phases(user) == [("queued", "held by its user; `scontrol release` lets it go (JobHeldUser)")]
    assert "nothing to submit" in user.hpcddp("submit", "sweep.yaml", "-y", "-J", "--hold").stdout
    user.twin.run(["scancel", f"--user={os.getuid()}"])
    assert phases(user) == [("failed", "cancelled (CANCELLED)")]
    said = user.hpcddp("submit", "sweep.yaml", "-y", "--wait")
    assert "submitted    1 job" in said.stdout
    (study,) = user.json("status", "sweep")["studies"]
    assert [run["phase"] for run in study["runs"]] == ["done"]
    assert "nothing to submit" in user.hpcddp("submit", "sweep.yaml", "-y").stdout
    assert len(list((Path(user.home) / "sweep").glob("*/r1/*/end.json"))) == 1


def test_more_memory_than_it_asked_for(user: User) -> None:
    """What slurmstepd logs says it, and that more must be asked for."""
    shutil.copy(CHECKOUT / "tests" / "twin" / "troubled.py", user.home)
    (user.home / "greedy.yaml").write_text(GREEDY)
    user.hpcddp("submit", "greedy.yaml", "-y", "--wait", exit_code=1)
    (study,) = user.json("status", "greedy", exit_code=3)["studies"]
    (run,) = study["runs"]
    assert (run["phase"], run["detail"]) == ("failed", "it used more memory than Slurm gave it")
    assert run["next_step"].startswith("ask for more with slurm.mem_mb in the sweep")
    assert "exceeded memory limit" in run["line"]
