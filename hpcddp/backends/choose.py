"""Backends by name."""

from __future__ import annotations

import shutil

from hpcddp.backends.base import Backend
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.run_root import Study


def lacking(profile: ClusterProfile) -> list[str]:
    """A sentence for each thing that this machine lacks for the profile's backend."""
    if profile.backend == "hosts":
        packages = {"ssh": "openssh-client", "rsync": "rsync"}
        return [
            f"This machine has no `{each}`. Install {package}." for each, package in packages.items() if not shutil.which(each)
        ]
    if profile.backend == "sagemaker":
        from hpcddp.backends.sagemaker import unreachable

        return unreachable(profile)
    return []


def make_backend(name: str, *studies: Study, rules: SlurmRules = SlurmRules()) -> Backend:  # noqa: B008 - a frozen value
    """The backend that a profile or a line of submissions.jsonl names, for the study, or on Slurm for several.

    `rules` are those of the profile, for submitting.
    """
    if name == "local":
        from hpcddp.backends.local import LocalBackend

        return LocalBackend(*studies)
    if name == "hosts":
        from hpcddp.backends.hosts import HostsBackend

        return HostsBackend(*studies)
    if name == "sagemaker":
        from hpcddp.backends.sagemaker import SageMakerBackend

        return SageMakerBackend(*studies)
    from hpcddp.backends.slurm import SlurmBackend

    return SlurmBackend(rules, *studies)
