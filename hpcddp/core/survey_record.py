"""survey.json, and what each node of a survey leaves for it, as frozen dataclasses. For Python 3.10, without libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A port of a network adapter; what is None could not be read."""

    name: str
    """As Linux calls it."""
    gbps: float | None = None
    kind: str
    """`InfiniBand`, `RoCE`, `Slingshot` or `Ethernet`."""
    gids: Mapping[str, str] = field(default_factory=dict)
    """Of RoCE: index -> type, of entries that have an address."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The node's own disk where jobs put temporary files."""

    path: str
    gb: Count | None = None
    read_gbs: float | None = None
    """GB/s of a file that was written, and dropped from memory."""
    why_not: str | None = None
    """Why it was not measured."""


@dataclass(frozen=True, kw_only=True)
class NodeSurvey:
    """What one node says of itself; what is None could not be learned, which is among `problems`."""

    host: str
    node: NodeFacts | None = None
    sockets: Count | None = None
    cores: Count | None = None
    """Physical ones, of all sockets."""
    threads_per_core: Count | None = None
    topology: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The matrix of `nvidia-smi topo -m`, as a profile has it."""
    adapters: tuple[Adapter, ...] = ()
    disk: Disk | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    arch_list: tuple[str, ...] = ()
    """What torch was built for."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LinkSurvey:
    """How messages travel between two nodes, by send and receive."""

    latency_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class SurveyRecord:
    """survey.json"""

    schema: int = SCHEMA
    date: str
    job: str
    node_type: str | None = None
    nodes: tuple[NodeSurvey, ...] = ()
    link: LinkSurvey | None = None
    """None of a single node, or where the ranks could not talk, which is among `problems`."""
    problems: tuple[str, ...] = ()
