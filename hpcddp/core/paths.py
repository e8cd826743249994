"""Paths that hold variables, filled in where the job runs. No torch."""

from __future__ import annotations

import os
import re

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec


def data_root_as_given(spec: JobSpec) -> str | None:
    """The point's own root, else the job's; None for data that need none."""
    return spec.point.workload.data.root or spec.data_root


def data_root(spec: JobSpec) -> str | None:
    """That root with variables filled in on this node; HpcddpError for one that is not set."""
    root = data_root_as_given(spec)
    return None if root is None else expanded(root, "data root")


def expanded(path: str, what: str) -> str:
    """`path` with ~ and $VARIABLES filled in; HpcddpError names a variable that this process does not have."""
    unset = [name for name in re.findall(r"\$\{?(\w+)", path) if name not in os.environ]
    if unset:
        raise HpcddpError(
            f"{what} `{path}`: ${unset[0]} is not set in the job; set it in the profile's environment, or give the path in full"
        )
    return os.path.expanduser(os.path.expandvars(path))
