"""What a twin is made of: the nodes of a profile, fewer where it has many, and the ports of its daemons."""

from __future__ import annotations

import itertools
import random
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.written_lists import expand_node_list

DEFAULT_NODES = 17
"""Nodes of one type: enough to run 16-node jobs beside a node that stays free."""

UNKNOWN_MB_PER_CORE = 8000
"""Stands in where the profile knows no memory: Slurm needs a number, and a node must hold what sites give by default."""

TWIN_PORTS = range(30000, 31500)
"""Above the rendezvous ports of jobs (10000-29999), below those that Linux gives to outgoing connections."""

CONTROLLER_PORTS = range(31500, 32768)
"""Of controllers, which boot beside a twin: a port that was free when it was drawn is bound seconds later."""

DEFAULT_QOS = "normal"
"""Slurm's own name for the QOS of a job that asks for none."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One slurmd; all of them live on this host. Of a cloud all nodes of a type, which have none."""

    name: str
    type: str
    """The key of its type in the profile."""
    kind: NodeType
    port: int


@dataclass(frozen=True, kw_only=True)
class Site:
    """What no profile says of a cluster."""

    accounts: tuple[str, ...] = ("proj",)
    """Slurm accounts that the current user may use, besides every QOS of the profile; the first is the default."""
    accounting: bool = True
    """Whether it has slurmdbd: without, there are no accounts, QOS and limits, and no sacct."""
    message_timeout_s: int = 10
    """How long a command waits for a controller that does not answer; Slurm's default."""
    slurmd_timeout_s: int = 60
    """How long a node may be silent before it is lost; long, as a busy machine must not look like a broken one."""
    memory_kill: bool = False
    """Whether Slurm looks once a second what memory a step has, and kills one that has more than its job asked for."""
    cloud: bool = False
    """Whether its nodes are those of a cloud that nobody has started: there is no slurmd, Slurm judges requests for any number
    of nodes, and no job can start.
    """


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Everything the configuration texts are made from."""

    profile: ClusterProfile
    folder: Path
    host: str
    """This machine's short name."""
    nodes: tuple[Node, ...]
    slurmctld_port: int
    slurmdbd_port: int
    site: Site = Site()

    @property
    def database(self) -> str:
        """Its name, in a MariaDB that may hold those of several twins."""
        return f"slurm_{re.sub('[^a-z0-9]', '_', self.profile.name.lower())}"


def make_shape(profile: ClusterProfile, folder: Path, cap: int, site: Site = Site()) -> Shape:
    """The shape of a twin of `profile` with at most `cap` nodes of each type; its ports are free now."""
    if profile.backend != "slurm":
        raise UsageError(f"{profile.name} has no Slurm (backend `{profile.backend}`): a twin is shaped like a Slurm cluster")
    kinds = node_lists(profile, cap) if site.cloud else node_kinds(profile, cap)
    slurmctld, slurmdbd, *slurmds = free_ports(2 + (0 if site.cloud else len(kinds)))
    return Shape(
        profile=profile,
        folder=folder,
        host=socket.gethostname().partition(".")[0],
        nodes=tuple(
            Node(name=name, type=key, kind=profile.node_types[key], port=port)
            for (name, key), port in zip(kinds, [0] * len(kinds) if site.cloud else slurmds, strict=True)
        ),
        slurmctld_port=slurmctld,
        slurmdbd_port=slurmdbd,
        site=site,
    )


def free_ports(count: int, among: Sequence[int] = TWIN_PORTS) -> list[int]:
    """So many ports that nobody listens on."""
    ports = (port for port in random.sample(among, len(among)) if _is_free(port))
    return list(itertools.islice(ports, count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def cores(kind: NodeType) -> int:
    """Physical cores of a node; UsageError where the profile does not know them."""
    if kind.physical_cores is None:
        raise UsageError("a twin needs `physical_cores` of every node type")
    return kind.physical_cores


def memory_mb(kind: NodeType) -> int:
    """What Slurm may hand out on a node, MB; a stand-in where the profile does not know it."""
    return kind.memory_mb if kind.memory_mb is not None else UNKNOWN_MB_PER_CORE * cores(kind)


def qos_name(qos: Qos) -> str:
    """Slurm's name of a QOS."""
    return qos.name or DEFAULT_QOS


def node_kinds(profile: ClusterProfile, cap: int) -> list[tuple[str, str]]:
    """Name and type of every node of the twin, at most `cap` of each type, in the profile's order."""
    return [(name, key) for key, kind in profile.node_types.items() for name in _names(key, kind, cap)]


def node_lists(profile: ClusterProfile, cap: int) -> list[tuple[str, str]]:
    """The nodes of each type as one Slurm node list, with the type: Slurm takes quadratic time to read thousands of names."""
    return [(_node_list(key, kind, cap), key) for key, kind in profile.node_types.items()]


def _node_list(key: str, kind: NodeType, cap: int) -> str:
    return kind.names or f"{_stem(key)}-[01-{min(kind.count or cap, cap):02d}]"


def _names(key: str, kind: NodeType, cap: int) -> list[str]:
    if kind.names is not None:
        return list(itertools.islice(expand_node_list(kind.names), cap))
    return [f"{_stem(key)}-{i:02d}" for i in range(1, min(kind.count or cap, cap) + 1)]


def _stem(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", key.lower())
