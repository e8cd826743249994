"""smoke.json and survey.json, and what each rank or node of such a job leaves for them, as frozen dataclasses.

For Python 3.10, without libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, added_later


@dataclass(frozen=True, kw_only=True)
class SmokeFindings:
    """What one rank found; `problems` are sentences."""

    rank: Count
    host: str
    data_root: str | None
    data_seen: bool | None
    """Whether the folder can be read there; None where the run needs none."""
    problems: tuple[str, ...]
    versions: Mapping[str, str | None] | None = added_later(None)
    """Of the software that computes; None where torch does not work."""
    node: NodeFacts | None = added_later(None)
    summed: int | None = added_later(None)
    """A sum of ones over all ranks, by the way that training takes."""


@dataclass(frozen=True, kw_only=True)
class SmokeData:
    """The data folder as the user wrote it, and the hosts that can read it."""

    root: str | None = None
    seen_by: tuple[str, ...] = ()
    missing_on: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SmokeSummary:
    """smoke.json: a problem that several ranks have stands in it once."""

    schema: int = SCHEMA
    ok: bool
    problems: tuple[str, ...]
    node_type: str | None = added_later(None)
    """On which its nodes are; None where earlier versions did not say."""
    data: SmokeData = SmokeData()
    ranks: tuple[SmokeFindings, ...] = ()


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
