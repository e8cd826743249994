"""What NCCL or RCCL of 2.18 to 2.30 says in its log (NCCL_DEBUG=INFO) of the network it chose, by their sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hpcddp.core.transport_record import RankTransport

MOST_SETTINGS = 40

_VERSION = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_TEXT = re.compile(r"NCCL (?:INFO|WARN) (.*)")
_IB = re.compile(r"NET/IB : Using\s+(\[.*?)(?:;|$)")
_SOCKET = re.compile(r"NET/Socket : Using\s+(\[.*)")
_DEVICE = re.compile(r"\[(\d+)\](?:=\{([^}]*)\}|([^\s\[{;]+))")
_MERGED = re.compile(r"\[\d+\]\s*([^,\s}]+)")
_VIRTUAL = re.compile(r"Made virtual device \[(\d+)\] name=(\S+)")
_NETWORK = re.compile(r"Using network (.+?)\s*$")
_ASSIGNED = re.compile(r"Assigned NET plugin (.+?) to comm")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_GDR = re.compile(r"NET/(.+?) : GPU Direct RDMA (Enabled|Disabled) for HCA (\d+) '([^']*)'")
_CONNECTION = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? : \d+\[[^\]]*\] -> \d+\[[^\]]*\](?: \[\w+\])? via (.+)")
_OVER_NETWORK = re.compile(r"NET/([^/]+)/(\d+)(\S*)")
_RINGS = re.compile(r"Connected all rings, use ring PXN \d+ GDR (\d)")
_CHANNELS = re.compile(r"(\d+) coll channels,")
_SETTING = re.compile(r"(NCCL_\w+|RCCL_\w+) set (?:by environment )?to (.+?)\.?\s*$")
_REMARKS = (
    re.compile(r"NET/IB : No device found"),
    re.compile(r"Failed to open libibverbs\S*"),
    re.compile(r"Failed to initialize NET plugin \S+"),
    re.compile(r"network .+ not found"),
)
_NO_PLUGIN = re.compile(r"NET/Plugin ?: .*(No plugin found|Could not find|returned 2)")


@dataclass
class _Found:
    version: tuple[str, str] | None = None
    network: str | None = None
    provider: str | None = None
    ports: dict[int, str] = field(default_factory=dict)
    """Index -> name of an RDMA adapter's port; names of merged ones joined by +."""
    links: dict[str, None] = field(default_factory=dict)
    interfaces: dict[int, str] = field(default_factory=dict)
    named: dict[int, str] = field(default_factory=dict)
    """Index -> name, as the line about GPUDirect RDMA has it."""
    virtual: dict[int, str] = field(default_factory=dict)
    gdr_off: dict[str, None] = field(default_factory=dict)
    connections: Counter[tuple[str, int]] = field(default_factory=Counter)
    gdr_connections: int = 0
    gdr: bool | None = None
    in_node: Counter[str] = field(default_factory=Counter)
    channels: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)


def parse_log(text: str) -> RankTransport:
    """Of the log of one process; of several communicators what any of them said."""
    found = _Found()
    for line in text.splitlines():
        version = _VERSION.search(line)
        if version and found.version is None:
            found.version = version[1], version[2]
        said = _TEXT.search(line)
        if said:
            _take(found, said[1])
    return _transport(found)


def _take(found: _Found, text: str) -> None:
    if connection := _CONNECTION.search(text):
        _take_connection(found, connection[1])
    elif devices := _IB.search(text):
        _take_ports(found, devices[1])
    elif interfaces := _SOCKET.search(text):
        found.interfaces |= {int(number): name.partition(":")[0] for number, _, name in _DEVICE.findall(interfaces[1])}
    elif network := _NETWORK.search(text) or _ASSIGNED.search(text):
        found.network = network[1]
    elif provider := _PROVIDER.search(text):
        found.provider = provider[1]
    elif adapter := _GDR.search(text):
        found.named[int(adapter[3])] = adapter[4]
        if adapter[2] == "Disabled":
            found.gdr_off[adapter[4]] = None
    elif virtual := _VIRTUAL.search(text):
        found.virtual[int(virtual[1])] = virtual[2]
    elif rings := _RINGS.search(text):
        found.gdr = rings[1] != "0"
    elif channels := _CHANNELS.search(text):
        found.channels = int(channels[1])
    elif (setting := _SETTING.search(text)) and len(found.settings) < MOST_SETTINGS:
        found.settings[setting[1]] = setting[2]
    else:
        _take_remark(found, text)


def _take_remark(found: _Found, text: str) -> None:
    for pattern in _REMARKS:
        if remark := pattern.search(text):
            found.remarks[remark[0].rstrip(".")] = None
    if _NO_PLUGIN.search(text):
        found.remarks["no network plug-in was found"] = None


def _take_ports(found: _Found, devices: str) -> None:
    """`[0]mlx5_0:1/IB [1]={[0] mlx5_1:1/IB, [1] mlx5_2:1/IB}`; of one written with rail and plane, `mlx5_0:1:2:0/IB`. Connections
    name them by their place in the list: behind merged ones, NCCL 2.20 numbers the others otherwise."""
    for place, (_, merged, name) in enumerate(_DEVICE.findall(devices)):
        ports = _MERGED.findall(merged) if merged else [name]
        found.ports[place] = "+".join(_port(port) for port in ports)
        found.links |= {port.split("/")[1]: None for port in ports if "/" in port}


def _port(text: str) -> str:
    """`mlx5_0:1/IB` as mlx5_0, `mlx5_0:2/IB` as mlx5_0:2."""
    name, _, rest = text.partition("/")[0].partition(":")
    number = rest.partition(":")[0]
    return name if number in ("", "1") else f"{name}:{number}"


def _take_connection(found: _Found, via: str) -> None:
    over = _OVER_NETWORK.match(via)
    if over:
        found.connections[over[1], int(over[2])] += 1
        found.gdr_connections += "/GDRDMA" in over[3]
        return
    kind = "SHM" if via.startswith(("SHM", "direct shared memory")) else "/".join(via.partition(" comm ")[0].split("/")[:2])
    found.in_node[kind.strip()] += 1


def _transport(found: _Found) -> RankTransport:
    library, version = found.version or ("NCCL", None)
    used = Counter(network for network, _ in found.connections)
    network = found.network or next(iter(used), None)
    is_socket = network is not None and network.endswith("Socket")
    names = found.interfaces if is_socket else found.ports or found.named
    singles = list(dict.fromkeys(single for name in names.values() for single in name.split("+")))
    return RankTransport(
        library=library,
        version=version,
        network=network,
        provider=found.provider,
        adapters=tuple(singles),
        links=() if is_socket else tuple(found.links),
        used=tuple(sorted(set(_used(found, names)))),
        gdr_off=tuple(found.gdr_off),
        network_connections=sum(found.connections.values()),
        gdr_connections=found.gdr_connections,
        gdr=found.gdr,
        in_node=dict(sorted(found.in_node.items())),
        channels=found.channels,
        settings=found.settings,
        remarks=tuple(found.remarks),
    )


def _used(found: _Found, names: dict[int, str]) -> Iterator[str]:
    """Adapters by name, each port of one that several were made into; by number where the log has no name."""
    for _, number in found.connections:
        name = names.get(number) or found.virtual.get(number) or found.named.get(number) or str(number)
        yield from name.split("+")
