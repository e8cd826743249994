"""What copying data to the nodes' own disks took, in launch.json. For Python 3.10, without libraries."""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.core.schema import Count, NonNegative
from hpcddp.core.text import count, duration, size


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
