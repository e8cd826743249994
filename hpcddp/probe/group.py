"""Which rank this process is, and how it reaches the others, in a script that started them by itself."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import slurm_job
from hpcddp.core.launcher import by_torchrun
from hpcddp.core.text import count
from hpcddp.worker.ranks import Rank, host_name
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.script_job import ScriptJob

STORE = "hpcddp-probe"


def group_of_job(job: ScriptJob, device: torch.device) -> ProcessGroup:
    """The job's; HpcddpError where the script's ranks are not those of the job, or on another device."""
    rank, point = job.rank, job.spec.point
    found = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if found != (rank.rank, rank.world):
        formed = f"its process group has {count(found[1], 'rank')}" if dist.is_initialized() else "it has no process group"
        raise HpcddpError(
            f"rank {rank.rank} of {rank.world} calls measure(), and {formed}: call torch.distributed.init_process_group() first; "
            f"the environment has address, world size and rank"
        )
    if device.type != point.device:
        raise HpcddpError(f"the model is on {device.type}, and the sweep's device is {point.device}: move it, or set `device`")
    return ProcessGroup(rank, device, job.store, job.watchdog)


def script_group(device: torch.device, env: Mapping[str, str] = os.environ) -> ProcessGroup:
    """All ranks of the script call it, once for each measurement; HpcddpError where they cannot be counted."""
    if not dist.is_initialized():
        _refuse_several(env)
        return ProcessGroup(_rank(0, 1, (host_name(env),), _name(), env), device, dist.HashStore())  # type: ignore[attr-defined]
    rank, world = dist.get_rank(), dist.get_world_size()
    store = _own_store()
    store.set(f"host/{rank}", host_name(env))
    hosts = tuple(store.get(f"host/{peer}").decode() for peer in range(world))
    if rank == 0:
        store.set("name", _name())
    return ProcessGroup(_rank(rank, world, hosts, store.get("name").decode(), env), device, store)


def _name() -> str:
    """In place of a job's number, where there is no job."""
    return f"{time.strftime('%Y%m%d')}-{secrets.token_hex(4)}"


_measurements = 0
"""Of this process: keys of a store serve once, and all ranks measure equally often."""


def _own_store() -> Any:
    global _measurements  # noqa: PLW0603 - a count of what this process did
    _measurements += 1
    return dist.PrefixStore(f"{STORE}/{_measurements}", dist.distributed_c10d._get_default_store())  # type: ignore[attr-defined]


def _refuse_several(env: Mapping[str, str]) -> None:
    """A rank that knows nothing of the others would measure itself alone, and call it the job."""
    world = env.get("WORLD_SIZE") if by_torchrun(env) else env.get("SLURM_STEP_NUM_TASKS")
    if world and world != "1":
        raise HpcddpError(
            f"{world} processes were started, and torch.distributed is not initialised: call init_process_group before measure()"
        )


def _rank(rank: int, world: int, hosts: tuple[str, ...], name: str, env: Mapping[str, str]) -> Rank:
    nodes = len(dict.fromkeys(hosts))
    on_each = Counter(hosts)
    if len(set(on_each.values())) > 1:
        uneven = ", ".join(f"{count} on {host}" for host, count in on_each.items())
        raise HpcddpError(f"every node must run equally many ranks, and here are {uneven}")
    per_node = world // nodes
    if any(hosts[first : first + per_node] != (hosts[first],) * per_node for first in range(0, world, per_node)):
        raise HpcddpError("ranks of one node must follow each other: start them by srun --distribution=block, or by torchrun")
    return Rank(
        rank=rank,
        local_rank=rank % per_node,
        world=world,
        nodes=nodes,
        job=slurm_job(env) or name,
        restart=0,
        host=hosts[rank],
        master_addr=env.get("MASTER_ADDR") or hosts[0],
        master_port=int(env.get("MASTER_PORT") or 0),
        launcher="torchrun" if by_torchrun(env) else "direct",
    )
