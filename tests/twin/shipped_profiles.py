"""The shipped profiles that have a Slurm, and those of which `make test` boots the controller."""

from __future__ import annotations

from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names


def slurm_profiles() -> list[str]:
    """By name."""
    return [name for name in profile_names() if load_profile(name).backend == "slurm"]


OF_OTHER_RULES = ("frontier", "jean-zay", "lumi-g", "rcc", "vista")
"""Between them they have every kind of rule: several types of nodes and partitions, QOS by the number of nodes, limits of a user,
forms of accounts, memory that must or must not be asked for, and each way to ask for GPUs. The others are for `make soak`.
"""


def of_controller(cluster: str, value: str | None = None) -> Any:
    """A parameter of a test on this cluster's controller: its name, unless it is another value."""
    return pytest.param(value or cluster, marks=[] if cluster in OF_OTHER_RULES else pytest.mark.soak)
