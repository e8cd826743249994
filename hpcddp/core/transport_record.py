"""transport.json: over which network, adapters and links of the node the ranks' library sends, as it said itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpcddp.core.schema import Count
from hpcddp.core.text import count

TCP = ("Socket", "FastSocket")
"""Networks of NCCL that are plain TCP."""

TCP_PROVIDERS = ("tcp", "sockets", "udp")
"""Beginnings of names of libfabric's providers that are."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the library's log says, in one rank or in all."""

    version: str | None = None
    provider: str | None = None
    """Of libfabric: cxi (Slingshot), efa, verbs, tcp."""
    links: tuple[str, ...] = ()
    """Of adapters, each kind once: IB, RoCE."""
    gdr_off: tuple[str, ...] = ()
    """Adapters that cannot read and write a GPU's memory (GPUDirect RDMA), as it said."""
    network_connections: Count = 0
    gdr_connections: Count = 0
    """Of these, those in which adapters read and write the GPU's memory."""
    gdr: bool | None = None
    """Whether it uses that at all, where it sums it up (NCCL from 2.24 on)."""
    in_node: Mapping[str, Count] = field(default_factory=dict)
    """Kind of link within the node (P2P/CUMEM, SHM) -> connections."""
    channels: Count | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables that it says it found."""
    remarks: tuple[str, ...] = ()
    """Its own sentences about what it did not find."""


@dataclass(frozen=True, kw_only=True)
class RankTransport(Said):
    """Of one rank."""

    library: str = "NCCL"
    """NCCL, RCCL or gloo."""
    network: str | None = None
    """As the library calls it: IB, Socket, AWS Libfabric."""
    adapters: tuple[str, ...] = ()
    """Those it found, by name: mlx5_0; of port 2 mlx5_0:2."""
    used: tuple[str, ...] = ()
    """Adapters that its connections to other nodes go through."""


@dataclass(frozen=True, kw_only=True)
class NodeAdapters:
    """Of one node."""

    found: tuple[str, ...] = ()
    used: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TransportRecord(Said):
    """transport.json, of all ranks; what ranks say differently stands side by side."""

    schema: int
    library: str
    networks: tuple[str, ...] = ()
    nodes: Mapping[str, NodeAdapters] = field(default_factory=dict)
    """Host -> its adapters."""
    unknown: str | None = None
    """Why nothing is known, in words."""

    @property
    def is_tcp(self) -> bool:
        """Whether data between nodes goes over plain TCP."""
        of_provider = (self.provider or "").startswith(TCP_PROVIDERS)
        return self.library != "gloo" and (of_provider or any(network in TCP for network in self.networks))

    @property
    def uses_gdr(self) -> bool | None:
        """Whether adapters read and write GPUs' memory; None where it is not known."""
        if self.gdr_connections or self.gdr:
            return True
        return False if self.network_connections or self.gdr is not None else None

    @property
    def fewest_adapters(self) -> tuple[str, tuple[str, ...]] | None:
        """The host with the fewest adapters in use, or found where none was said to be used, and which; None: not known."""
        known = {host: node.used or node.found for host, node in self.nodes.items()}
        known = {host: adapters for host, adapters in known.items() if adapters}
        return min(known.items(), key=lambda each: len(each[1]), default=None)


def merged(schema: int, ranks: Sequence[tuple[str, RankTransport]]) -> TransportRecord:
    """One record of all ranks, each with its host."""
    every = [rank for _, rank in ranks]
    hosts = {host: [rank for own, rank in ranks if own == host] for host, _ in ranks}
    gdr, in_node = [rank.gdr for rank in every if rank.gdr is not None], Counter[str]()
    for rank in every:
        in_node.update(rank.in_node)
    return TransportRecord(
        schema=schema,
        library=every[0].library,
        version=next((rank.version for rank in every if rank.version), None),
        networks=_each_once(rank.network for rank in every if rank.network),
        provider=next((rank.provider for rank in every if rank.provider), None),
        links=_each_once(link for rank in every for link in rank.links),
        nodes={host: _node(own) for host, own in hosts.items()},
        gdr_off=_each_once(name for rank in every for name in rank.gdr_off),
        network_connections=sum(rank.network_connections for rank in every),
        gdr_connections=sum(rank.gdr_connections for rank in every),
        gdr=any(gdr) if gdr else None,
        in_node=dict(sorted(in_node.items())),
        channels=max((rank.channels for rank in every if rank.channels is not None), default=None),
        settings={name: value for rank in every for name, value in rank.settings.items()},
        remarks=_each_once(remark for rank in every for remark in rank.remarks),
    )


def transport_words(record: TransportRecord) -> str:
    """`NCCL 2.28.9 over InfiniBand (IB), 4 adapters a node, GPUDirect RDMA`"""
    library = " ".join(filter(None, (record.library, record.version)))
    if record.unknown:
        return f"{library}: network unknown ({record.unknown})"
    if record.library == "gloo":
        names = " and ".join(_each_once(name for node in record.nodes.values() for name in node.used))
        return f"{library} over {names or 'an unknown interface'}"
    if len(record.nodes) < 2 and not record.network_connections:
        return f"{library} within the node{_in_node(record)}"
    return ", ".join(filter(None, (f"{library} over {_network(record)}", _adapters(record), _gdr(record))))


def _network(record: TransportRecord) -> str:
    """`InfiniBand (IB)`, `TCP (Socket)`, `libfabric's cxi`"""
    name = " and ".join(record.networks) or "an unknown network"
    if record.is_tcp:
        return f"TCP ({record.provider or name})"
    if record.provider:
        return f"libfabric's {record.provider}"
    kinds = {"IB": "InfiniBand", "RoCE": "RoCE"}
    links = " and ".join(kinds[link] for link in record.links if link in kinds)
    return f"{links} ({name})" if links else name


def _adapters(record: TransportRecord) -> str:
    fewest = record.fewest_adapters
    return f"{count(len(fewest[1]), 'adapter')} a node ({', '.join(fewest[1][:8])})" if fewest else ""


def _gdr(record: TransportRecord) -> str:
    if record.is_tcp or record.uses_gdr is None:
        return ""
    of = record.network_connections
    some = record.gdr_connections and record.gdr_connections < of
    share = f" on {record.gdr_connections} of {of} connections" if some else ""
    return f"GPUDirect RDMA{share}" if record.uses_gdr else "no GPUDirect RDMA"


def _in_node(record: TransportRecord) -> str:
    kinds = sorted(record.in_node, key=lambda kind: -record.in_node[kind])
    return f": {' and '.join(kinds)}" if kinds else ""


def _node(ranks: Iterable[RankTransport]) -> NodeAdapters:
    own = list(ranks)
    return NodeAdapters(
        found=_each_once(name for rank in own for name in rank.adapters),
        used=tuple(sorted(_each_once(name for rank in own for name in rank.used))),
    )


def _each_once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
