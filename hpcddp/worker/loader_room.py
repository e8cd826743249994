"""How much memory a rank's loader processes may fill with batches. Standard library only."""

from __future__ import annotations

import os

from hpcddp.worker.telemetry.node import node_memory

SHARED_MEMORY = "/dev/shm"
"""Batches travel through it; a process that finds it full is ended by a bus error."""

ROOM_SHARE = 0.5
"""Of what is free for a rank; the rest is for pinned copies, for what is read anew meanwhile, and for others."""


def loader_room_bytes(ranks_per_node: int, shared_memory: str = SHARED_MEMORY) -> int | None:
    """A rank's share of the memory that is free on its node, of what its job may have, and of what processes may share, whichever
    is least; None where none of these is known."""
    free = [size for size in (_node_bytes(), _job_bytes(), _shared_bytes(shared_memory)) if size is not None]
    return int(ROOM_SHARE * min(free)) // ranks_per_node if free else None


def _node_bytes() -> int | None:
    try:
        return node_memory().available
    except (OSError, KeyError, ValueError):
        return None


def _job_bytes() -> int | None:
    """What Slurm gave the job on each node; sbatch(1): in MiB."""
    found = os.environ.get("SLURM_MEM_PER_NODE", "")
    return int(found) * 2**20 if found.isdecimal() and int(found) else None


def _shared_bytes(folder: str) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None  # tmpfs without a limit says nought
