"""One job's header in Slurm's terms, and the options that follow: how GPUs are asked for, what profile and sweep add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.point import Point


@dataclass(frozen=True, kw_only=True)
class User:
    """Who submits; never part of an id. None: left out of the script."""

    account: str | None = None
    reservation: str | None = None
    mail: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One job's header, in Slurm's terms."""

    name: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int | None
    """Logical CPUs, as Slurm counts them; None: Slurm's default."""
    physical_cores_per_rank: int | None
    launcher: Literal["direct", "torchrun"]
    gpus_per_node: int
    """Asked for."""
    gres_type: str | None
    gpu_request: str
    mem_mb: int | None
    exclusive: bool
    constraint: str | None
    partition: str | None
    qos: str | None
    walltime_min: int
    warning_s: int | None
    """So long before the time limit Slurm sends SIGUSR2, for a checkpoint; None for runs that do not write any."""
    nodelist: str | None
    exclude: str | None
    options: tuple[str, ...]
    srun_options: tuple[str, ...] = ()
    user: User
    node_gpus: int | None = None
    """All GPUs of a node where a job has whole nodes, whatever it asks for; None: only those asked for count."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the ranks, by name."""

    @property
    def gpus_counted(self) -> int:
        """GPUs of a node that the job holds, used or not."""
        return self.gpus_per_node if self.node_gpus is None else self.node_gpus

    @property
    def tasks_per_node(self) -> int:
        """What srun starts on a node: its ranks, or one torchrun."""
        return 1 if self.launcher == "torchrun" else self.ranks_per_node

    @property
    def cpus_per_task(self) -> int | None:
        """As cpus_per_rank; torchrun has those of all its ranks."""
        return None if self.cpus_per_rank is None else self.cpus_per_rank * self.ranks_per_node // self.tasks_per_node


OF_BOTH = {
    "--nodes": "set layout.nodes",
    "--ntasks": "set layout.gpus_per_node",
    "--ntasks-per-node": "set layout.gpus_per_node",
    "--cpus-per-task": "set layout.physical_cores_per_rank",
    "--time": "set slurm.walltime_min",
}

OWN_OPTIONS: Mapping[str, str] = {
    **OF_BOTH,
    "--array": "each run is a job: set repeat",
    "--clusters": "set SLURM_CLUSTERS, which `hpcddp status` reads too",
    "--wait": "use `hpcddp submit --wait`",
    "--test-only": "use `hpcddp submit --dry-run`",
}
"""Raw sbatch options that would make a job other than its point says, or one that cannot be followed, and what to do instead."""

OWN_SRUN_OPTIONS: Mapping[str, str] = {
    **OF_BOTH,
    "--nodelist": "set slurm.nodelist",
    "--output": "`hpcddp logs` finds them where they are",
    "--error": "`hpcddp logs` finds them where they are",
    "--kill-on-bad-exit": "a run without one of its ranks would hang",
    "--job-name": "jobs are found by their names",
}
"""srun's options that would start other ranks than the point says, or ranks that cannot be followed, and what to do instead."""

THREAD_OPTIONS = {"hint": "--hint=nomultithread", "threads-per-core": "--threads-per-core=1"}


def gpu_option(request: JobRequest) -> str | None:
    """The one GPU request in the cluster's own syntax: `--gres=gpu:v100:4`, `--gpus-per-node=4` or `--gpus-per-task=1`; None for
    no GPUs, or where the site takes no option for them. Where a node's GPUs do not divide among its tasks they are asked for by
    node.
    """
    if not request.gpus_per_node or request.gpu_request == "none":
        return None
    gpus, syntax = request.gpus_per_node, request.gpu_request
    if syntax == "gpus-per-task":
        divides = gpus % request.tasks_per_node == 0
        gpus, syntax = (gpus // request.tasks_per_node, syntax) if divides else (gpus, "gpus-per-node")
    typed = f"{request.gres_type}:{gpus}" if request.gres_type else str(gpus)
    return f"--gres=gpu:{typed}" if syntax == "gres" else f"--{syntax}={typed}"


def step_gpu_option(request: JobRequest) -> str | None:
    """What srun is to be given besides: GPUs by task, since a task of the job is not one of its step."""
    option = gpu_option(request)
    return option if option and option.startswith("--gpus-per-task") else None


def job_options(rules: SlurmRules) -> tuple[str, ...]:
    """Raw sbatch options that every job has on this cluster."""
    thread = (THREAD_OPTIONS[rules.one_thread_per_core],) if rules.one_thread_per_core else ()
    return (*thread, *rules.options)


def srun_options(profile: ClusterProfile, node: NodeType, point: Point, *, exclusive: bool) -> tuple[str, ...]:
    """Raw srun options that the profile gives for these ranks; `exclusive`: on nodes of their own."""
    is_bound = exclusive and point.layout.launcher == "direct" and point.ranks_per_node == len(node.cpu_masks) > 0
    return (
        *profile.slurm.srun_options,
        *([f"--cpu-bind=mask_cpu:{','.join(f'{int(mask, 16):#x}' for mask in node.cpu_masks)}"] if is_bound else []),
    )


def own_options(request: JobRequest) -> Iterator[str]:
    """A sentence for each raw option that hpcddp sets itself."""
    for kind, options, own in (("job", request.options, OWN_OPTIONS), ("srun", request.srun_options, OWN_SRUN_OPTIONS)):
        for option in options:
            if (name := option.partition("=")[0]) in own:
                yield f"{kind} option {option}: hpcddp sets {name} itself; {own[name]}."
