"""A cluster profile: what a cluster is. One YAML file per machine in clusters/, every fact with its source and grade.

A fact is written `{value: 32, grade: A, source: wiki}`; `source` is a key of the file's `sources`, and `conflicts` keeps
what other sources say instead. Grades: A the site's or vendor's own documentation, B several independent users agree,
C one user or an inference, ? not verified. Code reads plain values; `facts` keeps where each came from.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Literal

from hpcddp.cluster.yamlfile import located, read_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Workload
from hpcddp.core.schema import Count, NonNegative, Path, Positive, SchemaError, decode, did_you_mean, dotted

FOLDER = FilePath(__file__).parents[1] / "clusters"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One value with where it comes from."""

    value: object
    grade: Literal["A", "B", "C", "?"]
    source: str
    note: str | None = None
    conflicts: tuple[Fact, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """One kind of node. Cores are physical, those that Slurm keeps for the system left out; `smt`: CPUs Slurm counts per core."""

    count: Positive | None = None
    names: str | None = None
    """A Slurm node list, such as `gn[01-06]`."""
    cpu: str | None = None
    sockets: Positive | None = None
    physical_cores: Positive | None = None
    smt: Positive = 1
    memory_mb: Positive | None = None
    """What Slurm may hand out on a node, MB (Slurm's M, 2^20 bytes)."""
    gpus: Count | None = None
    gpu: str | None = None
    gpu_memory_gb: Positive | None = None
    gpu_link: str | None = None
    socket_link: str | None = None
    """What joins the processor sockets: the way between GPUs that `gpu_link` does not join."""
    gres_type: str | None = None
    """The type in a typed GPU request (`gpu:v100:4`); None: untyped."""
    constraint: str | None = None
    local_disk_gb: int | None = None

    @property
    def logical_cpus(self) -> int | None:
        """CPUs as Slurm counts them."""
        return None if self.physical_cores is None else self.physical_cores * self.smt


@dataclass(frozen=True, kw_only=True)
class Qos:
    """Limits of one QOS; `name` None is what a job gets that asks for none."""

    name: str | None = None
    min_nodes: Positive = 1
    max_nodes: Positive | None = None
    max_walltime_min: Positive | None = None
    max_gpus: Positive | None = None
    max_cpus: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class SlurmRules:
    """How jobs are requested on this cluster. A rule of yes or no may be null: not documented, and taken as no."""

    partition: str | None = None
    account_required: bool | None = False
    gpu_request: Literal["gres", "gpus-per-node"] = "gres"
    exclusive_needs_all_gpus: bool | None = False
    """True where `--exclusive` alone leaves the node shared unless all its GPUs are requested."""
    qos: tuple[Qos, ...] = (Qos(),)
    max_mb_per_core: Positive | None = None
    default_mb_per_core: Positive | None = None
    max_gpus_per_user: Positive | None = None
    max_cores_per_user: Positive | None = None
    default_walltime_min: Positive | None = None
    max_array_size: Count | None = None
    """Tasks of a job array at most; None: what `scontrol show config` says; 0: runs of equal shape are jobs of their own too."""
    submissions_per_s: NonNegative | None = 50.0
    """Calls of sbatch at most, since all users share the controller; None: as fast as it answers."""


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The network between nodes."""

    name: str | None = None
    gbps_per_node: float | None = None
    """Raw, over all of a node's adapters."""
    adapters_per_node: Positive | None = None
    latency_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment the workers run in, named apart from the login node's (that one only runs hpcddp itself)."""

    kind: Literal["module", "conda", "venv", "container", "system"] = "system"
    module_init: tuple[str, ...] = ()
    """Files that define `module` where a batch shell lacks it; the first that exists is sourced."""
    modules: tuple[str, ...] = ()
    """Loaded in this order, each checked."""
    activate: tuple[str, ...] = ()
    """Shell lines after the modules (conda, venv), each checked."""
    python: str = "python3"
    """The command that runs Python there; a shell word, or several (`apptainer exec --nv image.sif python3`)."""
    torch: str | None = None
    """Which torch build this machine's GPUs and processors need, in words."""


@dataclass(frozen=True, kw_only=True)
class ClusterProfile:
    """One cluster; the fields are the keys of its YAML file."""

    schema: Literal[1]
    name: str
    title: str
    backend: Literal["slurm", "local"] = "slurm"
    status: Literal["active", "retired"] = "active"
    note: str | None = None
    login_hosts: tuple[str, ...] = ()
    """Host name patterns of the login nodes."""
    sources: Mapping[str, str] = field(default_factory=dict)
    node_types: Mapping[str, NodeType] = field(default_factory=dict)
    default_node_type: str | None = None
    slurm: SlurmRules = SlurmRules()
    fabric: Fabric = Fabric()
    compute: Environment = Environment()
    env: Mapping[str, str] = field(default_factory=dict)
    """Exported in every job."""
    template: str = "base.sh.j2"
    """A template of templates/, or a file beside the profile or below its folder; an absolute path once loaded from there."""
    default_workload: Workload | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """Not a key of the file: dotted path of a value -> where it comes from."""

    def node_type(self, name: str | None) -> NodeType:
        """The node type of that name, or the default one; UsageError names those there are."""
        if not self.node_types:
            raise UsageError(f"the profile of {self.name} names no node types; `node_types: {{main: {{gpus: 4}}}}` is the least")
        key = name or self.default_node_type
        if key is None or key not in self.node_types:
            problem = f"no node type `{key}` in {self.name}" if key else f"{self.name} needs a node type"
            raise UsageError(f"{problem}{did_you_mean(key or '', self.node_types)} (`hpcddp clusters show {self.name}`)")
        return self.node_types[key]


def load_profile(cluster: str) -> ClusterProfile:
    """The profile of that name, or of that YAML file."""
    if is_profile_file(cluster):
        return read_profile(FilePath(cluster))
    file = FOLDER / f"{cluster}.yaml"
    if not file.is_file():
        raise UsageError(f"no cluster `{cluster}` in clusters/{did_you_mean(cluster, profile_names())}")
    return read_profile(file)


def is_profile_file(cluster: object) -> bool:
    """Whether a cluster is named by its YAML file: anything with a slash or ending in .yaml."""
    return isinstance(cluster, str) and ("/" in cluster or cluster.endswith((".yaml", ".yml")))


def read_profile(file: FilePath) -> ClusterProfile:
    """A profile from its file; UsageError names the line of what does not fit."""
    data = read_yaml(file)
    facts: dict[Path, Fact] = {}
    try:
        if isinstance(data, dict) and "facts" in data:
            raise SchemaError(("facts",), "`facts` is not a key of a profile: write `{value:, grade:, source:}` in place")
        profile = decode(ClusterProfile, _strip_facts(data, (), facts))
        for path, fact in facts.items():
            _check_sources(fact, path, profile.sources)
    except SchemaError as error:
        raise located(error, file) from error
    template = _template(profile, file)
    return dataclasses.replace(profile, facts={dotted(path): fact for path, fact in facts.items()}, template=template)


def _template(profile: ClusterProfile, file: FilePath) -> str:
    """The path of a template beside the profile, or else the name of one in templates/. A profile reads no file from elsewhere:
    what a template says is printed, and ends up in scripts and bundles.
    """
    beside = (file.parent / profile.template).resolve()
    if file.parent.resolve() not in beside.parents:
        words = f"`{profile.template}` lies elsewhere: put the template beside the profile, or below its folder"
        raise located(SchemaError(("template",), words), file)
    return str(beside) if beside.is_file() else profile.template


def profile_names() -> list[str]:
    """The clusters that come with hpcddp, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def current_cluster() -> str | None:
    """HPCDDP_CLUSTER, else the shipped profile whose login host names match this host's, else None."""
    named = os.environ.get("HPCDDP_CLUSTER")
    if named:
        return named
    import socket

    host = socket.getfqdn()
    for name in profile_names():
        text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        if "login_hosts" in text and any(fnmatch.fnmatch(host, p) for p in load_profile(name).login_hosts):
            return name
    return None


def _strip_facts(data: object, path: Path, facts: dict[Path, Fact]) -> object:
    """`data` with every `{value:, grade:, source:}` replaced by its value; the facts are collected by path."""
    if isinstance(data, dict):
        if len(data.keys() & {"value", "grade", "source"}) >= 2:  # two of them: the third may be missing or misspelt
            facts[path] = decode(Fact, data, path)
            return data["value"]
        return {key: _strip_facts(item, (*path, key), facts) for key, item in data.items()}
    if isinstance(data, list):
        return [_strip_facts(item, (*path, i), facts) for i, item in enumerate(data)]
    return data


def _check_sources(fact: Fact, path: Path, sources: Mapping[str, str]) -> None:
    if fact.source not in sources:
        where = (*path, "source")
        raise SchemaError(where, f"source `{fact.source}` is not among `sources`{did_you_mean(fact.source, sources)}")
    for i, other in enumerate(fact.conflicts):
        _check_sources(other, (*path, "conflicts", i), sources)
