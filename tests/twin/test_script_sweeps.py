"""Sweeps of scripts on a real Slurm: the language model that comes with hpcddp, and the frameworks' scripts of docs/probe.md."""

from __future__ import annotations

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from tests.docs.test_probe_page import scripts
from tests.probe import SETTINGS
from tests.twin.twin import Twin
from tests.twin.userland import User

pytestmark = pytest.mark.soak

FRAMEWORKS = ("Lightning", "transformers", "Accelerate")

SWEEP = """
schema: 1
cluster: rcc
device: cpu
account: proj
workload: {{script: train_{name}.py}}
layout: {{nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1, exclusive: false}}
baselines: false
measure: {{warmup_steps: 3, steps: 12, telemetry_hz: 0}}
slurm: {{walltime_min: 5, mem_mb: 3000}}
"""


@pytest.fixture(scope="module")
def user(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has submitted them all, a rank on each of two nodes; they have ended."""
    user = User(rcc_twin, tmp_path_factory.mktemp("user"))
    user.hpcddp("init", "own-script")
    elsewhere = ("layout.node_type=v100", "layout.exclusive=false", "layout.gpus_per_node=1", "slurm.mem_mb=3000", "account=proj")
    settings = [word for setting in (*SETTINGS, *elsewhere) for word in ("--set", setting)]
    of_two = ("--cluster", "rcc", "--group", "nodes", "--where", "layout.nodes == 2")
    user.hpcddp("submit", "own-script.yaml", *of_two, *settings, "-y")
    for name in FRAMEWORKS:
        (user.home / f"train_{name}.py").write_text(scripts()[name])
        (user.home / f"{name}.yaml").write_text(SWEEP.format(name=name))
        user.hpcddp("submit", f"{name}.yaml", "-y")
    rcc_twin.wait_jobs(300)
    assert user.failures() == {}
    return user


@pytest.mark.parametrize("study", ["own-script", *FRAMEWORKS])
def test_two_nodes_are_measured(user: User, study: str) -> None:
    """The run counts, gates and all, of the point that was submitted; analyze reads it."""
    (run,) = load_study(single_study(user.home / study)).runs
    assert (run.state, run.reason, run.steady_steps) == ("counts", None, 12)
    assert run.point is not None
    assert (run.point.layout.nodes, run.point.workload.parallel) == (2, "ddp")
    assert min((run.part_ns or {})[part] or 0 for part in ("data_wait", "forward", "backward", "comm_exposed", "optimizer")) > 0
    assert "2 x 1" in user.hpcddp("analyze", study).stdout
