"""Backends by name."""

from __future__ import annotations

from hpcddp.backends.base import Backend
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.run_root import Study


def make_backend(name: str, *studies: Study, rules: SlurmRules = SlurmRules()) -> Backend:  # noqa: B008 - a frozen value
    """The backend that a profile or a line of submissions.jsonl names, for the study, or on Slurm for several.

    `rules` are those of the profile, for submitting.
    """
    if name == "local":
        from hpcddp.backends.local import LocalBackend

        return LocalBackend(*studies)
    from hpcddp.backends.slurm import SlurmBackend

    return SlurmBackend(rules, *studies)
