"""Checkpoints of a script whose sweep has `measure.resume`: when it writes them is decided here, and from which it goes on.

RUN/JOB.RESTART/checkpoints/00000120.script.pt/ is a folder with what the script wrote after 120 steps, and `hpcddp.json` with
whose steps these are. It has this name once every rank has written its part, and `.part` before; the newest two stay.
A framework loads its checkpoint before a callback knows of the training.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import Resumed, StepRange
from hpcddp.core.malloc import freed_memory
from hpcddp.core.records import write_json
from hpcddp.core.schema import decode_record, encode
from hpcddp.core.stop_signal import request_requeue
from hpcddp.worker.launch_record import env_id, software
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.script_job import ScriptJob, current_job
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.checkpoint import RETAINED, is_done
from hpcddp.worker.training.preemption import Action, ActionPoll
from hpcddp.worker.training.resume import attempts_before, interruption_words, log_event, stops_too_early

Save = Callable[[Path], object]
"""Writes what the script needs to go on into the folder; every rank calls it."""

COMPLETE = "[0-9]*.script.pt"

FACTS = "hpcddp.json"


class ScriptCheckpoints:
    """Of one rank; all ranks make it, and call its methods, after the same steps."""

    def __init__(self, job: ScriptJob, group: ProcessGroup, save: Save) -> None:
        self._job, self._group, self._save = job, group, save
        point = job.spec.point
        self._env_id = env_id(software(point), group.device.type, freed_memory(point))
        name, facts = group.share("script's checkpoint", self._newest() if group.rank.rank == 0 else None)
        self.folder: Path | None = job.attempt.parent / name if name else None
        """To go on from; None where the run begins."""
        self.first_step: int = facts.get("steps", 0)
        self._before = tuple(decode_record(StepRange, each) for each in facts.get("history", ()))
        self._polls = ActionPoll(group, self.first_step, point.measure.checkpoint_every_min)
        self._requeues = self._stops_too_early = False
        self.timer: StepTimer | None = None
        """Of the steps, once there is one."""

    @property
    def record(self) -> Resumed | None:
        """`resumed` of launch.json."""
        if self.folder is None:
            return None
        name = self.folder.relative_to(self._job.attempt.parent)
        return Resumed(attempt=name.parts[0], checkpoint=str(name), step=self.first_step, history=self._before)

    def history(self, steps: int) -> tuple[StepRange, ...]:
        """Whose steps make up a run of which so many are made."""
        made = steps - self.first_step
        own = [StepRange(attempt=self._job.attempt.name, first_step=self.first_step, steps=made)] if made else []
        return (*self._before, *own)

    def poll(self, steps: int) -> Action:
        """What to do after so many steps; what asking takes is part of the next step's record_ns."""
        if not self._polls.due(steps):
            return "continue"
        action = self._polls.action(steps)
        if action == "continue" and self.timer:
            self.timer.mark("record")
        return action

    def write(self, steps: int, *, last: bool) -> None:
        """Returns when every rank's part is written. `last`: the attempt ends with it, to be requeued."""
        folder = self._job.attempt / "checkpoints" / f"{steps:08d}.script.pt"
        part = folder.with_suffix(".part")
        if self._group.rank.rank == 0:
            part.mkdir(parents=True)
        self._group.share(f"checkpoint folder {steps}", None)
        self._save(part)
        if self._group.gather(f"checkpoint after {steps}", None):
            write_json(part / FACTS, {"env_id": self._env_id, "steps": steps, "history": encode(self.history(steps))})
            part.rename(folder)
            self._prune()
            log_event(self._job.attempt, "checkpoint", folder.name, step=steps)
            self._stops_too_early = last and stops_too_early(self.history(steps))
            self._requeues = last and not self._stops_too_early and request_requeue()
        self._group.share(f"written after {steps}", None)

    def why_interrupted(self, steps: int) -> str:
        """Why the attempt ended after so many steps, and what comes next; on rank 0."""
        return interruption_words(steps, requeues=self._requeues, stops_too_early=self._stops_too_early)

    def _newest(self) -> tuple[str | None, dict[str, Any]]:
        """Below the run's folder, of its attempts since it was last done; HpcddpError where it is of other software."""
        run = self._job.attempt.parent
        for attempt in reversed(attempts_before(self._job.spec, self._job.attempt)):
            if is_done(attempt):
                break
            for folder in sorted(attempt.glob(f"checkpoints/{COMPLETE}"), reverse=True):
                facts = json.loads((folder / FACTS).read_bytes())
                self._check_same(facts, run)
                print(f"hpcddp: resumes after {facts['steps']} steps, from {folder.relative_to(run)}", flush=True)
                return str(folder.relative_to(run)), facts
        return None, {}

    def _check_same(self, facts: dict[str, Any], run: Path) -> None:
        if facts["env_id"] != self._env_id:
            raise HpcddpError(
                f"The newest checkpoint of {run.parent.name}, {run.name} has env_id {facts['env_id']}, but this attempt "
                f"{self._env_id}: the script or the software changed. Restore it, or delete "
                f"{run}/*/checkpoints to start again."
            )

    def _prune(self) -> None:
        attempts = [*attempts_before(self._job.spec, self._job.attempt), self._job.attempt]
        folders = [folder for attempt in attempts for folder in sorted(attempt.glob(f"checkpoints/{COMPLETE}"))]
        for folder in folders[:-RETAINED]:
            shutil.rmtree(folder, ignore_errors=True)


def checkpoints_of(job: ScriptJob | None, group: ProcessGroup, save: Save | None) -> ScriptCheckpoints | None:
    """None where nothing is resumed; HpcddpError where it should be and the script writes no checkpoints."""
    if job is None or not job.spec.point.measure.resume:
        return None
    if save is None:
        raise HpcddpError(
            "measure.resume is true, but the script writes no checkpoints. Pass measure(..., save_checkpoint=function), where "
            "function(folder) writes one. Load steps.checkpoint_dir unless it is None."
        )
    return ScriptCheckpoints(job, group, save)


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
            raise HpcddpError(f"measure.resume is true, but nothing loads a checkpoint: {self._usage}")
        self._save = save
        return self._found

    def _write(self, folder: Path) -> None:
        assert self._save
        self._save(folder)


def _group(job: ScriptJob) -> ProcessGroup:
    """By the job's own store: the framework has not formed its process group yet."""
    return ProcessGroup(job.rank, torch.device(job.spec.point.device), job.store, job.watchdog)
