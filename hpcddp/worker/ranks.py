"""Which rank of which job this process is: read from the variables the launcher sets, never guessed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import slurm_job
from hpcddp.core.launcher import by_torchrun

_SLURM = {
    "rank": ("SLURM_PROCID",),
    "local_rank": ("SLURM_LOCALID",),
    "world": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    "nodes": ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
    "job": ("SLURM_JOB_ID",),
}
"""The step's variables first: a step may be smaller than its job."""

_LOCAL = {
    "rank": ("SUBMITIT_LOCAL_GLOBALID",),
    "local_rank": ("SUBMITIT_LOCAL_LOCALID",),
    "world": ("SUBMITIT_LOCAL_NTASKS",),
    "nodes": ("SUBMITIT_LOCAL_JOB_NUM_NODES",),
    "job": ("HPCDDP_JOB",),
}

RESTARTS = "HPCDDP_RESTART"
"""How often the job was restarted, where Slurm does not count it."""

_TORCHRUN = {"rank": ("RANK",), "local_rank": ("LOCAL_RANK",), "world": ("WORLD_SIZE",), "nodes": ("GROUP_WORLD_SIZE",)}
"""In place of the backend's, which are those of the torchrun of a node; the job stays the backend's."""

_MASTER = {"master_addr": ("MASTER_ADDR",), "master_port": ("MASTER_PORT",)}
"""Exported by the job script, by the local runner, or by torchrun."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a job."""

    rank: int
    local_rank: int
    world: int
    nodes: int
    job: str
    restart: int
    """How often Slurm has requeued the job; 0 the first time."""
    host: str
    master_addr: str
    master_port: int
    """Where rank 0 listens."""
    launcher: Literal["direct", "torchrun"] = "direct"
    store_is_there: bool = False
    """Whether torchrun listens at master_addr and master_port already, so that rank 0 need not."""
    local_device: Literal["rank", "zero"] = "rank"
    """As in the job's spec."""

    @property
    def ranks_per_node(self) -> int:
        return self.world // self.nodes

    @property
    def gpu(self) -> int:
        """The number of its GPU among those it sees; those that torchrun started see all GPUs of their node."""
        return 0 if self.local_device == "zero" and self.launcher == "direct" else self.local_rank


def this_rank(backend: str, env: Mapping[str, str] = os.environ, local_device: Literal["rank", "zero"] = "rank") -> Rank:
    """This process; `backend` is `slurm` (started by srun) or `local`. HpcddpError names a variable that is missing."""
    of_torchrun = by_torchrun(env)
    table = (_SLURM if backend == "slurm" else _LOCAL) | (_TORCHRUN if of_torchrun else {}) | _MASTER
    found = {field: _first(names, env, backend) for field, names in table.items()}
    job, master_addr = found.pop("job"), found.pop("master_addr")
    if backend == "slurm":
        job = slurm_job(env) or job
    numbers = {field: _number(field, text) for field, text in found.items()}
    if numbers["world"] % numbers["nodes"]:
        raise HpcddpError(
            f"{numbers['world']} ranks on {numbers['nodes']} nodes: every node must run equally many. Correct --ntasks-per-node."
        )
    restarts = "SLURM_RESTART_COUNT" if backend == "slurm" else RESTARTS
    restart = _number(restarts, env.get(restarts) or "0")
    return Rank(
        **numbers,
        job=job,
        master_addr=master_addr,
        restart=restart,
        host=host_name(env),
        launcher="torchrun" if of_torchrun else "direct",
        store_is_there=of_torchrun and env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        local_device=local_device,
    )


def host_name(env: Mapping[str, str] = os.environ) -> str:
    """Slurm's name of this node where there is one (several slurmd may share a machine), else the machine's."""
    return env.get("SLURMD_NODENAME") or env.get("HPCDDP_HOST") or socket.gethostname()


def _first(names: tuple[str, ...], env: Mapping[str, str], backend: str) -> str:
    for name in names:
        if env.get(name):
            return env[name]
    launcher = "the local runner" if backend != "slurm" else "srun in a script that `hpcddp render` printed"
    raise HpcddpError(f"{' and '.join(names)} not set on {host_name(env)}. Start workers with {launcher}.")


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise HpcddpError(f"{name} is {text!r}; a whole number is expected from the launcher")
    return int(text)
