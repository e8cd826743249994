"""Which Slurm is here, and whether it is one that hpcddp was tried with."""

from __future__ import annotations

import re

from hpcddp.backends.slurm_commands import query
from hpcddp.core.errors import HpcddpError

OLDEST = (22, 5)
"""The oldest Slurm that hpcddp supports: its commands' output is read as from this one on, and scripts are tried with it."""

TIMEOUT_S = 5
"""`srun --version` asks no controller."""


def version_here() -> str | None:
    """`22.05.8`; None where it does not say."""
    try:
        found = re.search(r"\b\d+\.\d+(\.\w+)*", query(["srun", "--version"], TIMEOUT_S))
    except HpcddpError:
        return None
    return found[0] if found else None


def too_old(version: str | None) -> str | None:
    """A sentence where Slurm of that version is older than any that hpcddp supports; an unknown one is taken for a newer."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    if found is None or (int(found[1]), int(found[2])) >= OLDEST:
        return None
    return f"Slurm {version} is older than {OLDEST[0]}.{OLDEST[1]:02d}, the oldest that hpcddp supports"
