"""What of the calling environment reaches Slurm's commands and the jobs of this machine. Standard library only, Python 3.10."""

from __future__ import annotations

from collections.abc import Mapping

from hpcddp.core.job_ids import TASK_VARIABLE

DROPPED = ("SBATCH_", "SQUEUE_", "SACCT_", "SLURM_", "SUBMITIT_", TASK_VARIABLE)
"""Beginnings of names: the user's own defaults, of which SQUEUE_* and SACCT_* would hide jobs, and what an enclosing allocation
set."""

RETAINED = ("SLURM_CONF", "SLURM_CLUSTERS")
"""Slurm's commands find their cluster by them."""


def slurm_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without the variables of DROPPED, but with those of RETAINED."""
    return {name: value for name, value in env.items() if name in RETAINED or not name.startswith(DROPPED)}
