"""A cluster profile: what a cluster is. One YAML file per machine in clusters/, every fact with its source and grade.

A fact is written `{value: 32, grade: A, source: wiki}`; `source` is a key of the file's `sources`, and `conflicts` keeps
what other sources say instead. Grades: A the site's or vendor's own documentation, B several independent users agree,
C one user or an inference, ? not verified. Code reads plain values; `facts` keeps where each came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hpcddp.cluster.environment import Environment, EnvRule
from hpcddp.cluster.profile_names import typed_path
from hpcddp.cluster.slurm_rules import AccountForm, GpuRequest, Rendezvous, SlurmRules
from hpcddp.core.errors import UsageError
from hpcddp.core.job_ids import BackendName
from hpcddp.core.point import Workload
from hpcddp.core.schema import Count, Path, Positive, SchemaError, added_later, decode, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One value with where it comes from."""

    value: object
    grade: Literal["A", "B", "C", "?"]
    source: str
    note: str | None = None
    conflicts: tuple[Fact, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Links:
    """What joins the GPUs of a node to each other and to its network adapters."""

    topology: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The matrix of `nvidia-smi topo -m`: a GPU or adapter (GPU0, mlx5_0) -> its row, with X for itself. Of AMD's GPUs the link
    types of `rocm-smi --showtopo`."""


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """One kind of node. Cores are physical, those that Slurm keeps for the system left out; `smt`: CPUs Slurm counts per core."""

    count: Positive | None = None
    names: str | None = None
    """A node list, such as `gn[01-06]`."""
    cpu: str | None = None
    sockets: Positive | None = None
    physical_cores: Positive | None = None
    smt: Positive = 1
    memory_mb: Positive | None = None
    """What Slurm may hand out on a node, in MiB."""
    gpus: Count | None = None
    gpu: str | None = None
    """As torch names it."""
    gpu_memory_gb: Positive | None = None
    gres_type: str | None = None
    """The type in a typed GPU request (`gpu:v100:4`); None: untyped."""
    constraint: str | None = None
    local_disk_gb: int | None = None
    local_disk_gbs: float | None = added_later(None)
    """What its disk reads, GB/s."""
    local_disk_path: str | None = added_later(None)
    """Where a job may write on it; variables are filled in on the node. None: SLURM_TMPDIR, TMPDIR or /tmp."""
    local_disk_per_job: bool | None = added_later(None)
    """Whether each job has a folder of its own there."""
    links: Links = added_later(Links())
    partition: str | None = added_later(None)
    """None: as in `slurm`."""
    gpu_request: GpuRequest | None = added_later(None)
    """None: as in `slurm`."""
    max_mb_per_core: Positive | None = added_later(None)
    """None: as in `slurm`."""
    account_form: AccountForm | None = added_later(None)
    """None: as in `slurm`."""
    modules: tuple[str, ...] = added_later(())
    """Loaded before those of `compute`."""
    usd_per_hour: float | None = added_later(None)
    """What a node costs, where that is paid by the hour."""
    cpu_masks: tuple[str, ...] = added_later(())
    """CPUs of each local rank, in hexadecimal, where one rank a GPU takes a whole node; empty: Slurm's choice."""

    @property
    def logical_cpus(self) -> int | None:
        """CPUs as Slurm counts them."""
        return None if self.physical_cores is None else self.physical_cores * self.smt


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The network between nodes."""

    name: str | None = None
    gbps_per_node: float | None = None
    """Over all of a node's adapters, as long as it lasts."""
    adapters_per_node: Positive | None = None
    latency_us: float | None = None
    protocol: Literal["rdma", "tcp"] | None = added_later(None)
    """How NCCL should use it."""
    burst_gbps: float | None = added_later(None)
    """What a node has for a while."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A file system that jobs read data from."""

    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class SageMaker:
    """What Amazon SageMaker is given with each training job. Credentials are none of it: boto3 finds them."""

    image: str | None = None
    """The container's, in a registry that `role` may read: with bash, torch and the `python` of `compute`."""
    role: str | None = None
    """ARN of the role that jobs have, which may read and write the bucket."""
    bucket: str | None = None
    """In S3, for code, records and checkpoints."""
    region: str | None = None
    """Such as `us-east-1`; the bucket is there, too."""
    prefix: str = "hpcddp"
    """Of what is in the bucket."""
    spot: bool | None = None
    """Whether jobs run on spot instances; those that `measure.resume` go on from their last checkpoint."""
    volume_gb: Positive = 100
    """Storage of each instance, which holds image and data."""


@dataclass(frozen=True, kw_only=True)
class ClusterProfile:
    """One cluster; the fields are the keys of its YAML file."""

    schema: Literal[1]
    name: str
    title: str
    extends: str | None = added_later(None)
    """A profile by name, or a file beside this one, that this one changes."""
    backend: BackendName = "slurm"
    status: Literal["active", "retired"] = "active"
    note: str | None = None
    login_hosts: tuple[str, ...] = ()
    """Host name patterns."""
    sources: Mapping[str, str] = field(default_factory=dict)
    node_types: Mapping[str, NodeType] = field(default_factory=dict)
    default_node_type: str | None = None
    slurm: SlurmRules = SlurmRules()
    rendezvous: Rendezvous = added_later(Rendezvous())
    fabric: Fabric = Fabric()
    storage: Mapping[str, Storage] = added_later(dict)
    sagemaker: SageMaker = added_later(SageMaker())
    compute: Environment = Environment()
    env: Mapping[str, str] = field(default_factory=dict)
    """Exported in every job, after modules and `activate`."""
    env_rules: tuple[EnvRule, ...] = added_later(())
    """Exported in the jobs that they fit."""
    template: str = "base.sh.j2"
    """A template of templates/, or a file beside the profile or below its folder."""
    default_workload: Workload | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """Not a key of the file: dotted path of a value -> where it comes from."""
    file: str | None = added_later(None)
    """Not a key of the file: where it was read from; None: it comes with hpcddp."""

    @property
    def show_command(self) -> str:
        """What prints the profile: by its file, where it does not come with hpcddp."""
        return f"hpcddp clusters show {self.name if self.file is None else typed_path(self.file)}"

    def node_type(self, name: str | None) -> NodeType:
        """The node type of that name, or the default one; UsageError names those there are."""
        if not self.node_types:
            raise UsageError(
                f"the profile of {self.name} has no node types. Add one, at least `node_types: {{main: {{gpus: 4}}}}`."
            )
        key = name or self.default_node_type
        if key is None or key not in self.node_types:
            problem = f"no node type `{key}` in {self.name}" if key else f"{self.name} needs a node type"
            raise UsageError(f"{problem}{did_you_mean(key or '', self.node_types)} (`{self.show_command}`)")
        return self.node_types[key]

    def rules_of(self, node: NodeType) -> SlurmRules:
        """How jobs on nodes of this type are requested: its own rules stand above the cluster's."""
        keys = ("partition", "gpu_request", "max_mb_per_core", "account_form")
        own: dict[str, Any] = {key: value for key in keys if (value := getattr(node, key)) is not None}
        return replace(self.slurm, **own)


FACT_KEYS = frozenset({"value", "grade", "source"})


def is_fact(data: object) -> bool:
    """Whether a mapping is meant as a fact: it has two of the three keys, so that the third may be missing or misspelt. A rule
    of `env_rules`, which has a value and a source of its own, has a name.
    """
    return isinstance(data, dict) and len(data.keys() & FACT_KEYS) >= 2 and "name" not in data


def strip_facts(data: object, path: Path, facts: dict[Path, Fact]) -> object:
    """`data` with the value in place of every fact; the facts are collected by path."""
    if isinstance(data, dict):
        if is_fact(data):
            facts[path] = decode(Fact, data, path)
            return data["value"]
        return {key: strip_facts(item, (*path, key), facts) for key, item in data.items()}
    if isinstance(data, list):
        return [strip_facts(item, (*path, i), facts) for i, item in enumerate(data)]
    return data


def check_fact_sources(fact: Fact, path: Path, sources: Mapping[str, str]) -> None:
    """SchemaError where the fact, or a conflict of it, names a source that is not among `sources`."""
    check_source(fact.source, path, sources)
    for i, other in enumerate(fact.conflicts):
        check_fact_sources(other, (*path, "conflicts", i), sources)


def check_source(source: str, path: Path, sources: Mapping[str, str]) -> None:
    """SchemaError where what stands at `path` has a source that is not among `sources`."""
    if source not in sources:
        raise SchemaError((*path, "source"), f"source `{source}` is not among `sources`{did_you_mean(source, sources)}")
