"""Over which network a run's ranks exchanged, beside what the cluster's profile has of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcddp.analysis.util.regular_files import record_or_none
from hpcddp.core.launch_record import FabricFacts, LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.transport_record import TransportRecord

NEAR = ("PIX", "PXB")
"""Of the topology's matrix: GPU and adapter below one PCIe switch, or several: the furthest at which NCCL uses GPUDirect RDMA
unless it is told otherwise (src/graph/paths.cc, ncclTopoCheckGdr: PATH_PXB)."""


@dataclass(frozen=True, kw_only=True)
class RunNetwork:
    """Of one run."""

    transport: TransportRecord
    fabric: FabricFacts
    full_nodes: bool | None
    """Whether its ranks have all GPUs of their nodes; None where the profile does not say how many there are."""
    near: bool | None
    """Whether a GPU of the node type is near an adapter; None where the profile has no such matrix."""


def read_network(attempt: Path, point: Point | None, launch: LaunchRecord) -> RunNetwork | None:
    """None where no network was recorded: a single rank, or records of an earlier version."""
    transport = record_or_none(TransportRecord, attempt / "transport.json")
    if transport is None:
        return None
    profile = launch.profile_facts()
    kind = profile.node_type(point.layout.node_type if point else None)
    return RunNetwork(
        transport=transport,
        fabric=profile.fabric,
        full_nodes=None if kind.gpus is None else launch.ranks_per_node >= kind.gpus,
        near=_near(kind.links.topology),
    )


def _near(topology: Mapping[str, tuple[str, ...]]) -> bool | None:
    """Whether any GPU has an adapter near it."""
    names = list(topology)
    links = [
        word
        for name, row in topology.items()
        if name.startswith("GPU")
        for other, word in zip(names, row, strict=False)
        if not other.startswith("GPU")
    ]
    return any(word in NEAR for word in links) if links else None
