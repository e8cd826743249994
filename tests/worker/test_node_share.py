"""What a job has of its node, as Slurm and the profile tell it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from hpcddp.worker.node_share import job_cpus, machine_cores, node_share
from hpcddp.worker.rank_result import NodeShare
from hpcddp.worker.ranks import this_rank
from tests.worker import given

RANK = this_rank(
    "slurm",
    {
        **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_JOB_ID": "7"},
        **{"MASTER_ADDR": "gn03", "MASTER_PORT": "1", "SLURMD_NODENAME": "gn03"},
    },
)

MIXED = {"SLURM_JOB_CPUS_PER_NODE": "48(x2),40", "SLURM_CPUS_ON_NODE": "2"}
"""As a twin of rcc says in a step of two tasks on three exclusive nodes."""


@pytest.mark.parametrize(("node", "cpus"), [("0", 48), ("1", 48), ("2", 40), ("3", None)])
def test_the_jobs_cpus_not_the_steps(node: str, cpus: int | None) -> None:
    """Runs of nodes are counted, by the number of this node; a node beyond them is unknown."""
    assert job_cpus({**MIXED, "SLURM_NODEID": node}) == cpus


def test_without_slurms_word_it_is_unknown() -> None:
    """Unknown is None, not 0."""
    assert job_cpus({}) is None


PROFILE = {"default_node_type": "v100", "node_types": {"v100": {"physical_cores": 32, "smt": 4}, "fat": {"physical_cores": None}}}


@pytest.mark.parametrize(
    ("profile", "node_type", "of"),
    [(PROFILE, None, 128), (PROFILE, "v100", 128), (PROFILE, "fat", machine_cores()), ({}, None, machine_cores())],
)
def test_a_node_has_what_its_profile_says(tmp_path: Path, profile: dict[str, Any], node_type: str | None, of: int) -> None:
    """CPUs as Slurm counts them; the machine's cores where the profile does not know."""
    what = given.point(1)
    what = dataclasses.replace(what, layout=dataclasses.replace(what.layout, node_type=node_type))
    spec = dataclasses.replace(given.job(tmp_path, what, profile=profile), backend="slurm")
    assert node_share(spec, RANK, {**MIXED, "SLURM_NODEID": "0"}) == NodeShare(host="gn03", cpus=48, of=of)


def test_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    """Slurm may count 4 CPUs on a machine of 4 cores and 8 threads: a job that has these has the node."""
    for cpu in range(8):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    (tmp_path / "cpuidle").mkdir()
    assert machine_cores(tmp_path) == 4
    assert machine_cores(tmp_path / "none") == os.cpu_count()


def test_without_slurm_nothing_is_reserved(tmp_path: Path) -> None:
    """The local runner may itself run inside a job: its variables are not this run's."""
    assert node_share(given.job(tmp_path, given.point(1)), RANK, MIXED).cpus is None
