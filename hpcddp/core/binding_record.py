"""Where a rank may run and take memory, and where its GPU is, as a frozen dataclass of launch.json.

For Python 3.10, without libraries.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.core.schema import Count, Positive


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
