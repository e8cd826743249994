"""A twin as the Slurm of this process, and a submission to it that dies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from hpcddp.backends.base import Batch
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.core.job_ids import base_id
from tests.backends.fake_slurm import PATIENCE_S
from tests.twin.twin import Twin


@contextmanager
def own_slurm(twin: Twin, env: Mapping[str, str]) -> Iterator[Twin]:
    """With `env` too, this process's commands of Slurm reach the twin; no job is left after."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**twin.env, **env}.items():
            patch.setenv(name, value)
        yield twin
        if jobs := twin.run(["squeue", "-h", "-o", "%A"]).stdout.split():
            twin.run(["scancel", *jobs])
        twin.wait_jobs(PATIENCE_S)


class CutShort(SlurmBackend):
    """Whoever submits is gone once sbatch has answered."""

    def submit_batch(self, batch: Batch) -> list[str]:
        jobs = super().submit_batch(batch)
        batch.study.job_dir(base_id(jobs[0])).unlink()
        raise KeyboardInterrupt
