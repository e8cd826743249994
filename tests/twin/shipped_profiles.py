"""The shipped profiles that have a Slurm."""

from __future__ import annotations

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names


def slurm_profiles() -> list[str]:
    """By name."""
    return [name for name in profile_names() if load_profile(name).backend == "slurm"]
