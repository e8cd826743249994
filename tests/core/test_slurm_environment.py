"""What of the calling environment Slurm's commands see."""

from __future__ import annotations

from hpcddp.core.job_ids import slurm_environment


def test_slurm_commands_do_not_see_an_enclosing_allocation() -> None:
    """Defaults of the user's own and SLURM_*, SUBMITIT_*, HPCDDP_TASK go; what names the cluster stays, and everything else."""
    dropped = {"SBATCH_ACCOUNT": "a", "SQUEUE_PARTITION": "p", "SACCT_LOCAL": "1"}
    dropped |= {"SLURM_JOB_ID": "1", "SUBMITIT_EXECUTOR": "slurm", "HPCDDP_TASK": "1"}
    retained = {"SLURM_CONF": "/c", "SLURM_CLUSTERS": "east", "PATH": "/bin"}
    assert slurm_environment({**dropped, **retained}) == retained
