"""Backends by name."""

from __future__ import annotations

from hpcddp.backends.base import Backend
from hpcddp.runroot import Study


def make_backend(name: str, study: Study) -> Backend:
    """The backend that a profile or a line of submissions.jsonl names."""
    if name == "local":
        from hpcddp.backends.local import LocalBackend

        return LocalBackend(study)
    from hpcddp.backends.slurm import SlurmBackend

    return SlurmBackend()
