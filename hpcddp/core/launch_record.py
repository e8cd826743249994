"""launch.json and nodes/HOST.json as frozen dataclasses; core/attempt_records.py says how they are written and read.

For Python 3.10, without libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, Positive, added_later, decode_record
from hpcddp.core.text import count, duration, size


@dataclass(frozen=True, kw_only=True)
class RankBinding:
    """Of one rank; lists of processors and NUMA nodes as Linux writes them, `0-7,64-71`. None and nothing are unknown."""

    cpus: str
    """Logical CPUs that it may run on."""
    cores: str = ""
    """The physical cores these belong to, each by its first logical CPU."""
    node_cores: Positive | None = None
    """Physical cores of the node."""
    sockets: tuple[Count, ...] = ()
    """That these cores are on."""
    numa_nodes: str = ""
    """That these cores are in."""
    memory_nodes: str = ""
    """NUMA nodes that it may take memory of: what its cpuset leaves it, and of these those that its policy binds it to."""
    memory_policy: str | None = None
    """As the kernel writes it: `default`, `bind:0`, `prefer:1`, `interleave:0-3`."""
    memory_sockets: tuple[Count, ...] = ()
    """Sockets of these NUMA nodes, of those that have processors."""
    gpu: str | None = None
    """Its GPU's address on the PCI bus: `0000:17:00.0`."""
    gpu_numa_node: Count | None = None
    """The NUMA node that the GPU is attached to."""
    gpu_socket: Count | None = None
    """The socket that the GPU is attached to."""


@dataclass(frozen=True, kw_only=True)
class NodeCopy:
    """The copy of one node, made by one rank of it."""

    host: str
    folder: str
    """Where it lay, on the node."""
    filesystem: str
    """Its type: ext4, xfs; tmpfs is memory."""
    files: Count
    unreadable: Count = 0
    """Pictures that could not be read: empty in the copy."""
    copied_bytes: Count
    copy_s: NonNegative
    check_s: NonNegative
    """Reading the copy again, to compare it."""
    reused: bool = False
    """An earlier run of the same allocation made it; what it took was that run's."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """The copies of all nodes, and how long the ranks waited for them: before the warm-up, in no timing of a step."""

    wait_s: NonNegative
    """Until the last node had its copy, checked."""
    nodes: tuple[NodeCopy, ...]

    @property
    def reused(self) -> bool:
        """Whether no node copied anything for this run."""
        return all(node.reused for node in self.nodes)

    @property
    def copied_bytes(self) -> int:
        """Of one copy."""
        return max(node.copied_bytes for node in self.nodes)

    @property
    def slowest_copy_s(self) -> float:
        """The copying alone, on the node that took longest."""
        return max(node.copy_s for node in self.nodes)

    @property
    def bytes_per_s(self) -> float | None:
        """What a node read from the shared file system while all did, the slowest; None where nothing was to copy."""
        rates = [node.copied_bytes / node.copy_s for node in self.nodes if node.copy_s and node.copied_bytes]
        return min(rates, default=None)


def staging_words(found: Staging) -> str:
    """`144 GB copied to each of 4 nodes in 3 min (0.8 GB/s a node), checked in 61 s`"""
    if found.reused:
        return f"{size(found.copied_bytes)} of data lie on {count(len(found.nodes), 'node')} from an earlier run of the job"
    where = f"each of {len(found.nodes)} nodes" if len(found.nodes) > 1 else found.nodes[0].host
    rate = f" ({size(found.bytes_per_s)}/s a node)" if found.bytes_per_s else ""
    check_s = max(node.check_s for node in found.nodes)
    return (
        f"{size(found.copied_bytes)} copied to {where} in {duration(found.slowest_copy_s)}{rate}, checked in {duration(check_s)}"
    )


Fact = str | int | float | bool | None
"""A setting or a version, for display."""


@dataclass(frozen=True, kw_only=True)
class LinkFacts:
    """What joins a node's GPUs and adapters."""

    topology: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The matrix of `nvidia-smi topo -m`."""


@dataclass(frozen=True, kw_only=True)
class NodeTypeFacts:
    """What the worker and the analysis need of a node type of the cluster's profile."""

    smt: Positive | None = None
    """Logical CPUs per core."""
    physical_cores: Positive | None = None
    gpus: Count | None = None
    gpu: str | None = added_later(None)
    """Their name, as torch reports it where the profile's source has that."""
    links: LinkFacts = added_later(LinkFacts())
    local_disk_path: str | None = added_later(None)


@dataclass(frozen=True, kw_only=True)
class FabricFacts:
    """The network between nodes."""

    name: str | None = added_later(None)
    protocol: str | None = added_later(None)
    """rdma or tcp."""
    adapters_per_node: Count | None = added_later(None)
    gbps_per_node: NonNegative | None = None
    """Of all of a node's adapters."""


@dataclass(frozen=True, kw_only=True)
class ProfileFacts:
    """What the worker and the analysis need of the cluster's profile as it was used."""

    fabric: FabricFacts = FabricFacts()
    node_types: Mapping[str, NodeTypeFacts] = field(default_factory=dict)
    default_node_type: str | None = None

    def node_type(self, name: str | None) -> NodeTypeFacts:
        """The node type of that name, or the default one; one of which nothing is known where the profile has neither."""
        return self.node_types.get(name or self.default_node_type or "", NodeTypeFacts())


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What the training set is and where it lay."""

    name: str | None = None
    root: str | None = None
    samples: Count | None = None
    decoder: str | None = added_later(None)
    """Name and version of what decoded the pictures; None where there are none, and in older records."""
    staging: Staging | None = added_later(None)
    """Of data that were copied to the nodes' own disks, and read there; None: they were read in `root`."""
    resident_bytes: Count | None = added_later(None)
    """Of it on each rank's device; None where batches are copied there."""
    unofficial: tuple[str, ...] | None = added_later(None)
    """Names of its files that are others than those that its publisher serves; None where nobody serves any, or none was read."""
    form: str | None = added_later(None)
    """`data.form` of bigMNIST; None of other data, and in older records."""


@dataclass(frozen=True, kw_only=True)
class ScriptFacts:
    """What the probe reads from the objects of a script whose sweep knows its name and arguments only."""

    model: str
    """`train:Net`, by the script and the class."""
    data: str
    precision: Literal["fp32", "fp16", "bf16", "fp64"]
    samples_per_step: Positive
    """Of a rank."""
    iterations_per_step: Positive = 1
    loader_workers_per_rank: Count = 0
    parallel: Literal["ddp", "none"] = "ddp"


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """launch.json: what ran where, on what, with which settings."""

    schema: int
    step_rows: int = 1
    """Version of the columns of step rows."""
    point: str
    run: int | None = None
    job: str | None = None
    restart: int | None = None
    backend: str | None = None
    launcher: str | None = None
    """What started the ranks: `direct` (srun, or the local runner) or `torchrun`."""
    communication: str | None = None
    """gloo or nccl."""
    started_unix_ns: Count | None = None
    """When all ranks had met."""
    launched_unix_ns: Count | None = added_later(None)
    """When the first of them was launched: when srun's step began on its node (core/start_up.py)."""
    hosts: tuple[str, ...] = ()
    ranks: Positive
    ranks_per_node: Positive = 1
    cpus_of_ranks: tuple[Count, ...] = ()
    """Logical CPUs that each rank may run on."""
    bindings: tuple[RankBinding, ...] = added_later(())
    """Of each rank: which processors these are, its memory, and where its GPU is."""
    gpus: tuple[str, ...]
    """The GPUs' names, each once."""
    device: str | None = None
    freed_memory: str | None = None
    versions: Mapping[str, Fact] = field(default_factory=dict)
    env_id: str
    """Attempts with different ones are never pooled."""
    environment: Mapping[str, Fact] = field(default_factory=dict)
    """Variables that may explain a number."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """The cluster's profile as used; `profile_facts` has what is read of it."""
    git_commit: str | None = None
    data: TrainingData = TrainingData()
    script: ScriptFacts | None = added_later(None)
    """Of a point that is a script of the user's own."""
    clock: str | None = None
    """By which steps were timed, in words."""
    tf32: Mapping[str, bool | str] | None = None
    """Whether fp32 may run in TF32, by kind of operation."""
    gates: tuple[str, ...] = ()
    """Those that end.json will have if the attempt is done; older versions did not say."""

    def profile_facts(self) -> ProfileFacts:
        """Raises SchemaError where the profile is not one."""
        return decode_record(ProfileFacts, self.profile, ("profile",))


@dataclass(frozen=True, kw_only=True)
class StepRange:
    """Steps of a run that one of its attempts made and that count."""

    attempt: str
    """JOB.RESTART"""
    first_step: Count
    steps: Positive


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The checkpoint that an attempt went on from; at step 0 there was none that could be read."""

    attempt: str | None
    checkpoint: str | None
    """Below the run's folder."""
    step: Count
    history: tuple[StepRange, ...] = ()
    """The steps before it, by the attempts that made them."""
    passed_over: tuple[str, ...] = ()
    """Checkpoints that could not be read, in sentences."""


@dataclass(frozen=True, kw_only=True)
class TrainingLaunch(LaunchRecord):
    """launch.json of an attempt that trains."""

    resumed: Resumed | None = None
    """None where the run begins."""


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """A GPU as CUDA or HIP describes it."""

    name: str
    memory_bytes: int
    capability: str
    """`9.0`; of AMD's GPUs the architecture, gfx90a."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """A node's processors, memory and GPUs as a process of the job sees them."""

    schema: int = SCHEMA
    host: str | None = None
    machine: str | None = None
    kernel: str | None = None
    cpu: str | None = None
    cpus: int | None = None
    cpus_usable: int | None = None
    memory_bytes: int | None = None
    gpu_driver: str | None = None
    gpus: tuple[GpuFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeRecord(NodeFacts):
    """nodes/HOST.json"""

    telemetry: Mapping[str, Any] | None = None
    """What the sampler reads there: `hz`, `gpus`, and `no_gpus`, why there are none; `node_energy`, its source if any."""
