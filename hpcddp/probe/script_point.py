"""What is known of a script: its workload as a point, from its objects and arguments; its rank, and how it reaches others."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import slurm_job
from hpcddp.core.launch_record import ScriptFacts
from hpcddp.core.launcher import by_torchrun
from hpcddp.core.own_script import completed
from hpcddp.core.point import Data, Layout, Measure, OwnScript, Point, Workload
from hpcddp.core.text import count
from hpcddp.worker.launch_record import script_file
from hpcddp.worker.ranks import Rank, host_name
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.script_job import ScriptJob

PRECISIONS: Mapping[str, Literal["fp32", "fp16", "bf16", "fp64"]] = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
}

SECRET = re.compile(r"(^|[-_])(token|secret|credentials?|api[-_]?key|secret[-_]key|access[-_]key)$|passw|passphrase")
"""Of an argument's name: its value is recorded nowhere. `--max-tokens` and `--tokenizer` are no secrets, but what a run is of."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a measurement was asked for."""

    samples_per_step: int
    iterations_per_step: int
    warmup_steps: int
    steps: int
    tokens_per_step: int | None
    flops_per_step: float | None

    def __post_init__(self) -> None:
        positive = {name: value for name, value in vars(self).items() if name != "warmup_steps" and value is not None}
        wrong = {name: value for name, value in positive.items() if value < 1}
        if wrong or self.warmup_steps < 0:
            given = ", ".join(f"{name}={value}" for name, value in (wrong or {"warmup_steps": self.warmup_steps}).items())
            raise HpcddpError(f"measure({given}): every number must be at least 1; only warmup_steps may be 0")

    def per_sample(self, of_step: float | None) -> int | None:
        """What a step has of something, by its samples."""
        return None if of_step is None else round(of_step / self.samples_per_step)


def read_facts(  # noqa: PLR0913 - what it is read from
    wanted: Wanted, model: nn.Module, loader: Any, group: ProcessGroup, *, autocast: str | None, exchanges: bool
) -> ScriptFacts:
    """What can be read of the script's workload."""
    module = bare(model)
    return ScriptFacts(
        model=f"{script_name()}:{type(module).__name__}",
        data=f"{script_name()}:{type(getattr(loader, 'dataset', loader)).__name__}",
        precision=PRECISIONS.get(autocast or _parameter_type(module), "fp32"),
        samples_per_step=wanted.samples_per_step,
        iterations_per_step=wanted.iterations_per_step,
        loader_workers_per_rank=getattr(loader, "num_workers", 0),
        parallel="ddp" if exchanges or group.rank.world == 1 else "none",  # one rank is the baseline of many
    )


def point_in_job(job: ScriptJob, facts: ScriptFacts, hooked: bool) -> Point:
    """The point of the job, completed; HpcddpError where the script does something else than its sweep says."""
    point, samples = job.spec.point, facts.samples_per_step
    planned = point.workload.samples_per_step
    if planned not in (None, samples):
        raise HpcddpError(
            f"The script calls measure(..., samples_per_step={samples}), but the sweep's workload.samples_per_step is {planned}. "
            f"Make them equal, or remove the sweep's."
        )
    if point.measure.comm == "on" and not hooked and point.ranks > 1:
        raise HpcddpError(
            "measure.comm is on, but no DistributedDataParallel without a communication hook was found to time. "
            "Set measure.comm to check, which uses a profiler, or to off."
        )
    return completed(point, facts)


def script_point(wanted: Wanted, facts: ScriptFacts, group: ProcessGroup, *, hooked: bool) -> Point:
    """The point that this run of the script is of, where no sweep has one; `hooked`: DDP's buckets are timed."""
    on_gpu = group.device.type == "cuda"
    return Point(
        cluster=os.environ.get("HPCDDP_CLUSTER") or os.environ.get("SLURM_CLUSTER_NAME") or "local",
        workload=Workload(
            model=facts.model,
            data=Data(name=facts.data),
            precision=facts.precision,
            batch_per_gpu=facts.samples_per_step,
            loader_workers_per_rank=facts.loader_workers_per_rank,
            parallel=facts.parallel,
        ),
        layout=Layout(
            nodes=group.rank.nodes,
            gpus_per_node=group.rank.ranks_per_node,
            exclusive=False,  # nobody said that it should be
        ),
        measure=Measure(warmup_steps=wanted.warmup_steps, steps=wanted.steps, comm="on" if hooked else "off"),
        device="cuda" if on_gpu else "cpu",
        script=OwnScript(
            name=script_file().name, arguments=without_secrets(sys.argv[1:]), iterations_per_step=facts.iterations_per_step
        ),
    )


def inside(model: nn.Module) -> nn.Module | None:
    """What DDP or torch.compile put themselves around; None of a model of its own."""
    inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) and len(list(model.children())) == 1 else None


def bare(model: nn.Module) -> nn.Module:
    """Without what is around it."""
    inner = inside(model)
    return bare(inner) if inner else model


def script_name() -> str:
    """Its stem, as a module's name."""
    stem = "".join(letter if letter.isalnum() else "_" for letter in script_file().stem)
    return stem if stem.isidentifier() else f"script_{stem}"


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """`--api-key ...` and `--token=...` in place of what they were given."""
    found = list[str]()
    hidden = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = argument.startswith("-") and SECRET.search(name.lower()) is not None
        found.append("..." if hidden else f"{name}=..." if secret and equals else argument)
        hidden = secret and not equals
    return tuple(found)


def samples_per_epoch(loader: Any) -> int:
    """Of an epoch over all ranks, where the loader has a data set that knows its length; else 0."""
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        return 0


def samples_of_batch(loader: Any) -> int:
    """HpcddpError where the loader does not know."""
    size = getattr(loader, "batch_size", None)
    if not isinstance(size, int):
        name = type(loader).__name__
        raise HpcddpError(f"{name} does not define its batch size. Pass ScalingCallback(samples_per_step=...).")
    return size


def _parameter_type(module: nn.Module) -> str:
    first = next((parameter.dtype for parameter in module.parameters() if parameter.dtype.is_floating_point), torch.float32)
    return str(first).rpartition(".")[2]


STORE = "hpcddp-probe"


def job_group(job: ScriptJob, device: torch.device) -> ProcessGroup:
    """The job's; HpcddpError where the script's ranks are not those of the job, or on another device."""
    rank, point = job.rank, job.spec.point
    found = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if found != (rank.rank, rank.world):
        formed = f"its process group has {count(found[1], 'rank')}" if dist.is_initialized() else "it has no process group"
        raise HpcddpError(
            f"rank {rank.rank} of {rank.world} calls measure(), but {formed}. Call torch.distributed.init_process_group() first; "
            f"the environment has address, world size and rank."
        )
    if device.type != point.device:
        raise HpcddpError(
            f"The model is on {device.type}, but the sweep's device is {point.device}. Move the model, or set `device`."
        )
    return ProcessGroup(rank, device, job.store, job.watchdog)


def script_group(device: torch.device, env: Mapping[str, str] = os.environ) -> ProcessGroup:
    """All ranks of the script call it, once for each measurement; HpcddpError where they cannot be counted."""
    if not dist.is_initialized():
        _refuse_several(env)
        return ProcessGroup(_rank(0, 1, (host_name(env),), _job_name(), env), device, dist.HashStore())  # type: ignore[attr-defined]
    rank, world = dist.get_rank(), dist.get_world_size()
    store = _own_store()
    store.set(f"host/{rank}", host_name(env))
    hosts = tuple(store.get(f"host/{peer}").decode() for peer in range(world))
    if rank == 0:
        store.set("name", _job_name())
    return ProcessGroup(_rank(rank, world, hosts, store.get("name").decode(), env), device, store)


def _job_name() -> str:
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
            f"{world} processes were started, but torch.distributed is not initialised. Call init_process_group before measure()."
        )


def _rank(rank: int, world: int, hosts: tuple[str, ...], name: str, env: Mapping[str, str]) -> Rank:
    nodes = len(dict.fromkeys(hosts))
    on_each = Counter(hosts)
    if len(set(on_each.values())) > 1:
        uneven = ", ".join(f"{count} on {host}" for host, count in on_each.items())
        raise HpcddpError(f"every node must run the same number of ranks, but there are {uneven}")
    per_node = world // nodes
    if any(hosts[first : first + per_node] != (hosts[first],) * per_node for first in range(0, world, per_node)):
        raise HpcddpError(
            "Ranks of a node must have consecutive numbers. Start them with srun --distribution=block, or with torchrun."
        )
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
