"""Settings as pieces of advice; advice.py makes one text of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WORKERS, CORES = "workload.loader_workers_per_rank", "layout.physical_cores_per_rank"
HOSTS = "slurm.exclude"
"""The key whose values are hosts, and add up."""


@dataclass(frozen=True)
class Set:
    """Values of keys of a sweep, as a piece of advice: `--set KEY=VALUE`."""

    values: Mapping[str, object]


Advice = str | tuple[str | Set, ...]
"""What to do: words with settings among them. advice.py makes one text of it."""


def phrase(*pieces: Advice | Set) -> tuple[str | Set, ...]:
    """One after the other."""
    return tuple(part for piece in pieces for part in ((piece,) if isinstance(piece, str | Set) else piece) if part != "")
