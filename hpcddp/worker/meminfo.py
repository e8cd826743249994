"""A node's memory as Linux counts it. Standard library only, Python 3.10."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class NodeMemory(NamedTuple):
    """Bytes."""

    total: int
    available: int
    """Linux's own estimate of what can be had without swapping, proc(5)."""


def node_memory(proc: Path = Path("/proc")) -> NodeMemory:
    """OSError or KeyError where the node does not say."""
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines[:3])}
    return NodeMemory(sizes["MemTotal"], sizes["MemAvailable"])
