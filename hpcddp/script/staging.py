"""Copies of data on nodes' own disks, as a script has to do with them: where they lie, and what removes them after a failure."""

from __future__ import annotations

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.point import Point
from hpcddp.script.container import shell_word

BY_JOB = ("$SLURM_TMPDIR", "$TMPDIR")
"""As worker/staging.py has it; after them /tmp."""


def disk_folders(profile: ClusterProfile, point: Point) -> tuple[str, ...]:
    """Where copies may lie, with variables of the node."""
    path = profile.node_type(point.layout.node_type).local_disk_path if profile.node_types else None
    return BY_JOB if path is None else (path,)


def removal(profile: ClusterProfile, point: Point) -> str | None:
    """What bash does on a node for the copies of this job's runs, those of an array's task and of runs in one allocation too.

    None where they go with the job.
    """
    if profile.node_types and profile.node_type(point.layout.node_type).local_disk_per_job:
        return None
    folders = disk_folders(profile, point)
    words = " ".join([*map(shell_word, folders), *(["/tmp"] if folders == BY_JOB else [])])
    return (
        'name="${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"; '
        f'for disk in {words}; do rm -rf -- "$disk/hpcddp-stage-$(id -u)-${{name:-$SLURM_JOB_ID}}"[-+]*; done'
    )
