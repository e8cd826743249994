"""Ranks from the launcher's variables."""

from __future__ import annotations

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.ranks import this_rank

SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NNODES": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_JOB_ID": "4711",
    "SLURMD_NODENAME": "gn02",
    "MASTER_ADDR": "gn01",
    "MASTER_PORT": "14711",
}

LOCAL = {
    "SUBMITIT_LOCAL_GLOBALID": "1",
    "SUBMITIT_LOCAL_LOCALID": "1",
    "SUBMITIT_LOCAL_NTASKS": "2",
    "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
    "HPCDDP_JOB": "local-3",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "20001",
}


def test_slurms_step_counts_not_its_job() -> None:
    """A step may be smaller than its job: the ranks are the step's."""
    rank = this_rank("slurm", SLURM)
    assert (rank.rank, rank.local_rank, rank.world, rank.nodes, rank.ranks_per_node) == (5, 1, 8, 2, 4)
    assert (rank.job, rank.restart, rank.host) == ("4711", 0, "gn02")
    assert (rank.master_addr, rank.master_port) == ("gn01", 14711)


def test_a_requeued_job_is_a_new_attempt() -> None:
    """Slurm keeps the job id and counts the restarts."""
    assert this_rank("slurm", {**SLURM, "SLURM_RESTART_COUNT": "2"}).restart == 2


def test_ranks_of_torchrun() -> None:
    """Slurm's variables are then those of a node's torchrun, but for the job; the ranks meet where torchrun listens."""
    own = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2", "MASTER_PORT": "29400"}
    env = {**SLURM, **own, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "SLURM_RESTART_COUNT": "1"}
    rank = this_rank("slurm", env)
    assert (rank.rank, rank.local_rank, rank.world, rank.nodes, rank.ranks_per_node) == (6, 2, 8, 2, 4)
    assert (rank.job, rank.restart, rank.launcher, rank.master_port) == ("4711", 1, "torchrun", 29400)
    assert rank.store_is_there
    assert not this_rank("slurm", {**env, "TORCHELASTIC_USE_AGENT_STORE": "False"}).store_is_there
    assert this_rank("slurm", SLURM).launcher == "direct"


def test_local_ranks_inside_a_slurm_job() -> None:
    """The backend decides which variables count: a local run may be started from within an allocation."""
    rank = this_rank("local", {**SLURM, "SLURM_RESTART_COUNT": "2", **LOCAL})
    assert (rank.rank, rank.world, rank.job, rank.restart) == (1, 2, "local-3", 0)


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"])
def test_a_missing_variable_is_named(name: str) -> None:
    """With the host, and how a worker is started."""
    env = {key: value for key, value in SLURM.items() if key != name}
    with pytest.raises(HpcddpError, match=rf"{name}.* not set on gn02: .*srun"):
        this_rank("slurm", env)


def test_nodes_must_run_equally_many() -> None:
    """7 ranks on 2 nodes are not what any point asks for."""
    with pytest.raises(HpcddpError, match="7 ranks on 2 nodes"):
        this_rank("slurm", {**SLURM, "SLURM_STEP_NUM_TASKS": "7"})


def test_an_odd_value_is_named() -> None:
    """Early interpolation in a script leaves such things."""
    with pytest.raises(HpcddpError, match=r"rank is '\$SLURM_PROCID'"):
        this_rank("slurm", {**SLURM, "SLURM_PROCID": "$SLURM_PROCID"})


def test_the_gpu_of_a_rank() -> None:
    """Its local rank's; device 0 where it sees its own only, as a rank that torchrun started does not."""
    assert this_rank("slurm", SLURM).gpu == 1
    assert this_rank("slurm", SLURM, "zero").gpu == 0
    own = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    assert this_rank("slurm", {**SLURM, **own}, "zero").gpu == 2
