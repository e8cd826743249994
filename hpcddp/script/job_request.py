"""One job's header, in Slurm's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
