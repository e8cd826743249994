"""What submitit's entry point names: `AutoExecutor(folder, cluster="hpcddp")` finds the executor of hpcddp by it.

submitit loads all plugins in every rank of every job that it starts, too, where none of them makes an executor and what the login
side imports may be missing: there its own class stands for ours.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from submitit.slurm.slurm import SlurmExecutor


def __getattr__(name: str) -> Any:
    """`ClusterExecutor`, imported when it is named."""
    if name != "ClusterExecutor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return SlurmExecutor if "SUBMITIT_EXECUTOR" in os.environ else import_module("hpcddp.submit.executor").ClusterExecutor
