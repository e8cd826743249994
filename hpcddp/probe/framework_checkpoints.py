"""Checkpoints of a training by a framework, which loads them before a callback knows of the training."""

from __future__ import annotations

from pathlib import Path

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.probe.checkpoints import Save, ScriptCheckpoints, checkpoints_of
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.script_job import ScriptJob, current_job


class FrameworkCheckpoints:
    """Of one callback; all ranks ask it the same."""

    def __init__(self, usage: str) -> None:
        """`usage`: how the framework is given the checkpoint."""
        self._usage = usage
        self._save: Save | None = None
        self._found: ScriptCheckpoints | None = None
        self._is_read = False

    @property
    def folder(self) -> Path | None:
        """What an earlier attempt of the run left; None where it begins, and outside of a sweep with `measure.resume`."""
        job = current_job()
        if job and not self._is_read:
            self._found = checkpoints_of(job, _group(job), self._write)
        self._is_read = True
        return self._found.folder if self._found else None

    def ready(self, save: Save) -> ScriptCheckpoints | None:
        """The training begins, and `save` writes it; HpcddpError where it could not go on from what an earlier attempt left."""
        job = current_job()
        if job and job.spec.point.measure.resume and not self._is_read:
            raise HpcddpError(f"measure.resume is true, and nothing loads a checkpoint: {self._usage}")
        self._save = save
        return self._found

    def _write(self, folder: Path) -> None:
        assert self._save
        self._save(folder)


def _group(job: ScriptJob) -> ProcessGroup:
    """By the job's own store: the framework has not formed its process group yet."""
    return ProcessGroup(job.rank, torch.device(job.spec.point.device), job.store, job.watchdog)
