"""The part of a cluster profile that says how jobs are requested from its Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpcddp.core.schema import Count, NonNegative, Positive, added_later

GpuRequest = Literal["gres", "gpus-per-node", "gpus-per-task", "none"]
"""How a job asks for GPUs; none: the site gives them with the nodes, and takes no option for them."""

Intent = Literal["debug", "production", "long"]
"""What a job is for, where a site has a way of its own for it."""


@dataclass(frozen=True, kw_only=True)
class Qos:
    """One way into the queue, with its limits: a QOS, or with `partition` a QOS in that partition. The same name may stand in
    several rules: a wall time that depends on the nodes is a rule for each range.
    """

    name: str | None = None
    """None: what a job gets that asks for none."""
    partition: str | None = added_later(None)
    """The partition that the rule holds in; None: any."""
    node_types: tuple[str, ...] = added_later(())
    """Empty: all."""
    intent: Intent | None = added_later(None)
    """What it is for, as a sweep's `slurm.intent` says it; None: anything."""
    automatic: bool | None = added_later(None)
    """Whether a job that names no QOS is given this one: not what is charged, ranked or granted otherwise. None: only where the
    rule has no name."""
    min_nodes: Positive = 1
    max_nodes: Positive | None = None
    max_walltime_min: Positive | None = None
    max_gpus: Positive | None = None
    max_cpus: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One partition; None: not known, or without such a limit."""

    node_types: tuple[str, ...] = ()
    """Empty: all."""
    default: bool | None = False
    """Whether Slurm takes it for a job that names none."""
    min_nodes: Positive | None = None
    max_nodes: Positive | None = None
    max_walltime_min: Positive | None = None
    default_walltime_min: Positive | None = None
    max_mb_per_core: Positive | None = None
    default_mb_per_core: Positive | None = None
    qos: tuple[str, ...] = ()
    """Empty: any."""
    always_exclusive: bool | None = None
    """None: as for the whole cluster."""


@dataclass(frozen=True, kw_only=True)
class AccountForm:
    """What accounts look like that may use these nodes."""

    pattern: str
    """A regular expression (Python's) for the whole name."""
    sentence: str
    """What a refusal says: `GPU accounts end in _g`."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """How the ranks find rank 0."""

    master_suffix: str | None = None
    """Appended to the first host's name, to reach it by the network between nodes (`i`)."""
    master_address: Literal["name", "numeric"] = "name"
    """numeric: the address that Slurm has of the first node."""


@dataclass(frozen=True, kw_only=True)
class SlurmRules:
    """How jobs are requested on this cluster. A rule of yes or no may be null: not documented, and taken as no."""

    partition: str | None = None
    """The only partition, or the default one."""
    partitions: Mapping[str, Partition] = added_later(dict)
    """Those with GPU nodes, where there are several."""
    account_required: bool | None = False
    account_form: AccountForm | None = added_later(None)
    """What accounts look like; keys as of a node type's."""
    gpu_request: GpuRequest = "gres"
    local_device: Literal["rank", "zero"] = added_later("rank")
    """Which GPU a rank uses: the one of its local rank, or device 0 where it sees only its own."""
    exclusive_needs_all_gpus: bool | None = False
    """True where `--exclusive` shares the node unless all its GPUs are requested."""
    always_exclusive: bool | None = added_later(False)
    """True where a job always has its nodes alone."""
    memory_option: Literal["forbidden", "required", "nonzero"] | None = added_later(None)
    """Of `--mem`: forbidden, required, or forbidden as 0; None: free."""
    one_thread_per_core: Literal["hint", "threads-per-core"] | None = added_later(None)
    """The option by which CPUs are cores: `--hint=nomultithread` or `--threads-per-core=1`; None: none."""
    options: tuple[str, ...] = added_later(())
    """Raw sbatch options of every job."""
    srun_options: tuple[str, ...] = added_later(())
    """Raw srun options that ranks are started with (`--cpu-bind=none`)."""
    qos: tuple[Qos, ...] = (Qos(),)
    max_mb_per_core: Positive | None = None
    default_mb_per_core: Positive | None = None
    max_gpus_per_user: Positive | None = None
    max_cores_per_user: Positive | None = None
    default_walltime_min: Positive | None = None
    max_array_size: Count | None = None
    """Tasks of a job array; None: as `scontrol show config` says; 0: no arrays."""
    submissions_per_s: NonNegative | None = 50.0
    """Calls of sbatch at most; None: as fast as it answers."""
