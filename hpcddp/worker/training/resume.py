"""Resuming a run from its newest checkpoint, and writing the next ones.

A checkpoint holds what rank 0 has of the model, the optimizer and the loss scaler, which all ranks have alike (parameters are
compared), of BatchNorm's statistics, which DDP hands from rank 0 to all before each step, and every rank's random numbers. Where
parameters are sharded each shard has a file beside it, and statistics, each rank's own until an evaluation, are rank 0's. The
samples that come next follow from the number of steps made. Only what a rank draws itself is restored: a user's data that draw
in a loader's process, and not from the seed they are given, draw something else after a restart.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.launch_record import Resumed, StepRange
from hpcddp.core.malloc import freed_memory
from hpcddp.core.records import append_line
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record, encode
from hpcddp.core.stop_signal import request_requeue
from hpcddp.data.source import to_bytes
from hpcddp.worker.checksums import checksum
from hpcddp.worker.launch_record import env_id, software
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.checkpoint import (
    State,
    newest_intact,
    prune,
    prune_shards,
    restore_shard,
    to_resume,
    unpack,
    write_checkpoint,
    write_shard,
)
from hpcddp.worker.training.epochs import EpochRecorder
from hpcddp.worker.training.preemption import Action, ActionPoll
from hpcddp.worker.training.trainer import Trainer

EARLY_STOPS = 3
"""After so many attempts in a row that were told to stop as they began, the job is not requeued: one may be a preemption, another
a slow start; a third means that the warning always comes too early."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What the checkpoints of a run must have in common."""

    point: str
    run: int
    samples: int
    torch: str
    env_id: str


@dataclass(frozen=True)
class RunStart:
    """Where an attempt begins."""

    signature: Signature | None = None
    """None without `measure.resume`."""
    step: int = 0
    history: tuple[StepRange, ...] = ()
    """The steps before that, by the attempts that made them."""
    state: State | None = None
    """The checkpoint; None at step 0."""
    record: Resumed | None = None
    """`resumed` of launch.json, on rank 0; None where the run begins."""
    damaged: tuple[Path, ...] = ()
    """On rank 0: the checkpoints that were passed over."""


def find_start(spec: JobSpec, group: ProcessGroup, attempt: Path, samples: int) -> RunStart:
    """All ranks call it: rank 0 reads the run's newest checkpoint that is intact and hands it to all. HpcddpError where it is of
    other software or other data: to go on would mix what cannot be pooled."""
    if not spec.point.measure.resume:
        return RunStart()
    earlier = to_resume(attempts_before(spec, attempt)) if group.rank.rank == 0 else []
    file, data, passed_over = newest_intact(earlier)
    damaged = tuple(earlier[: len(passed_over)])
    for sentence in passed_over:
        log_event(attempt, "passed over", sentence)
    environment = env_id(software(spec.point), group.device.type, freed_memory(spec.point))
    signature = Signature(point=spec.point.id, run=spec.run, samples=samples, torch=str(torch.__version__), env_id=environment)
    data = _to_all(group, data)
    if not data:
        resumed = _resumed(attempt, None, 0, (), passed_over) if passed_over else None
        return RunStart(signature, record=resumed, damaged=damaged)
    state = unpack(data)
    _check_same(state, signature, attempt.parent)
    steps, history = state["steps"], tuple(decode_record(StepRange, each) for each in state["history"])
    resumed = _resumed(attempt, file, steps, history, passed_over) if file else None
    return RunStart(signature, steps, history, state, resumed, damaged)


def restore(state: State, trainer: Trainer, rank: int, run: Path) -> None:
    """Makes the trainer what it was; DDP's and the optimizer's tensors stay and get other values. `run`: where shards lie."""
    with torch.no_grad():
        for buffer, value in zip(trainer.module.buffers(), state["buffers"], strict=True):
            buffer.copy_(value)
    if trainer.sharding:
        restore_shard(trainer, run, state["shards"], rank)
    else:
        _restore_replica(state, trainer)
    if trainer.scaler:
        trainer.scaler.load_state_dict(state["scaler"])
    _restore_random(state["random"][rank], trainer.device)


def _restore_replica(state: State, trainer: Trainer) -> None:
    trainer.module.load_state_dict(state["module"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    if trainer.average:
        trainer.average.restore(state["average"])


class Checkpointer:
    """Writes the checkpoints of an attempt; all ranks call its methods after the same steps."""

    def __init__(  # noqa: PLR0913 - what a checkpoint is made of
        self,
        spec: JobSpec,
        group: ProcessGroup,
        trainer: Trainer,
        start: RunStart,
        timer: StepTimer,
        *,
        epochs: EpochRecorder | None = None,
    ) -> None:
        self._spec = spec
        self._group = group
        self._attempt = spec.attempt_dir(group.rank.job, group.rank.restart)
        self._timer = timer
        self._trainer = trainer
        self._start = start
        self._epochs = epochs
        self.first_step = start.step
        self._polls = ActionPoll(group, start.step, spec.point.measure.checkpoint_every_min)
        self.requeues = False
        """On rank 0: the job will be requeued."""
        self.stops_too_early = False
        """On rank 0: it will not be, as restarts bring the run no further."""

    def poll(self, steps: int) -> Action:
        """What to do after so many `steps`; what asking takes is part of the next step's record_ns."""
        if not self._polls.due(steps):
            return "continue"
        action = self._polls.action(steps)
        if action == "continue":
            self._timer.mark("record")
        return action

    def write(self, steps: int, *, last: bool) -> None:
        """Returns when the checkpoint after so many `steps` is written. `last`: the attempt ends with it, to be requeued.
        HpcddpError where ranks do not have the same parameters: a restart would hide it."""
        trainer, rank, shards = self._trainer, self._group.rank.rank, self._spec.point.shards
        shard = write_shard(self._attempt, steps, trainer, rank) if trainer.sharding and rank < shards else None
        own = {
            "shard": shard,
            "parameters": checksum(trainer.module.parameters()),
            "random": _random(trainer.device),
            "loss_sum": self._epochs.loss_sum if self._epochs else None,
        }
        ranks = self._group.gather(f"checkpoint after {steps}", own)
        if ranks:
            _refuse_different([rank["parameters"] for rank in ranks], steps, shards)
            epochs = self._epochs.state([rank["loss_sum"] for rank in ranks]) if self._epochs else None
            files = [rank["shard"] for rank in ranks[:shards]] if trainer.sharding else None
            self._write_file(steps, [rank["random"] for rank in ranks], epochs, files)
            self.stops_too_early = last and stops_too_early(history_of(self._start, self._attempt, steps))
            self.requeues = last and not self.stops_too_early and request_requeue()
        self._group.share(f"written after {steps}", None)

    def _write_file(self, steps: int, draws: list[Any], epochs: State | None, shards: list[str] | None) -> None:
        began_s, trainer = time.monotonic(), self._trainer
        state = {
            **(vars(self._start.signature) if self._start.signature else {}),
            "steps": steps,
            "history": encode(history_of(self._start, self._attempt, steps)),
            "buffers": list(trainer.module.buffers()),
            **(_replica(trainer) if shards is None else {"shards": shards}),
            "scaler": trainer.scaler.state_dict() if trainer.scaler else None,
            "random": draws,
            "epochs": epochs,
        }
        file = write_checkpoint(self._attempt, steps, state)
        attempts = [*attempts_before(self._spec, self._attempt), self._attempt]
        prune(attempts, self._start.damaged)
        prune_shards(attempts)
        facts = {"step": steps, "bytes": file.stat().st_size, "took_s": round(time.monotonic() - began_s, 3)}
        log_event(self._attempt, "checkpoint", file.name, **facts)


def _replica(trainer: Trainer) -> State:
    return {
        "module": trainer.module.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "average": trainer.average.state() if trainer.average else None,
    }


def interruption_words(steps: int, *, requeues: bool, stops_too_early: bool) -> str:
    """Why an attempt ended after so many steps, before the run's last, and what comes next."""
    if stops_too_early:
        return (
            f"stopped by SIGUSR2 after one step, like the {EARLY_STOPS - 1} attempts before it, so "
            f"the job is not requeued. The time limit is too close to the start. The last checkpoint is after step "
            f"{steps - 1}."
        )
    then = "the job is requeued and resumes from it" if requeues else "submit it again to resume from it"
    return f"stopped by SIGUSR2, with a checkpoint after step {steps - 1}; {then}"


def _resumed(attempt: Path, file: Path | None, step: int, history: tuple[StepRange, ...], passed_over: list[str]) -> Resumed:
    name = file.relative_to(attempt.parent) if file else None
    print(f"hpcddp: resumes after {step} steps, from {name}" if name else "hpcddp: starts at step 0", flush=True)
    return Resumed(
        attempt=name.parts[0] if name else None,
        checkpoint=str(name) if name else None,
        step=step,
        history=history,
        passed_over=tuple(passed_over),
    )


def history_of(start: RunStart, attempt: Path, steps: int) -> list[StepRange]:
    """Whose steps make up a run of which so many `steps` are made, in order; an attempt that made none is left out."""
    own = StepRange(attempt=attempt.name, first_step=start.step, steps=steps - start.step)
    return [*start.history, *([own] if own.steps else [])]


def stops_too_early(history: Sequence[StepRange]) -> bool:
    """Whether the last EARLY_STOPS attempts made the one step each that comes before an attempt asks whether to stop."""
    return len(history) >= EARLY_STOPS and all(each.steps <= 1 for each in history[-EARLY_STOPS:])


def log_event(attempt: Path, event: str, what: str, **facts: object) -> None:
    """A line of events.jsonl; of the job's output as well, unless it is an ordinary checkpoint."""
    append_line(attempt / "events.jsonl", {"unix_ns": time.time_ns(), "event": event, "what": what, **facts})
    if event != "checkpoint":
        print(f"hpcddp: {event}: {what}", flush=True)


def attempts_before(spec: JobSpec, attempt: Path) -> list[Path]:
    """The run's attempts older than this one, oldest first."""
    attempts = Study(Path(spec.study)).attempts(spec.label, spec.run)
    return attempts[: attempts.index(attempt)] if attempt in attempts else attempts


def _check_same(state: State, signature: Signature, run: Path) -> None:
    own = vars(signature)
    odd = next((key for key in own if state.get(key) != own[key]), None)
    if odd:
        raise HpcddpError(
            f"The newest checkpoint of {run.parent.name}, {run.name} has {odd} {state.get(odd)}, but this attempt {own[odd]}. "
            f"Restore the earlier value, or delete {run}/*/checkpoints to start again."
        )


def _refuse_different(sums: list[str], steps: int, shards: int) -> None:
    """`shards`: ranks that hold one copy between them."""
    odd = next((rank for rank, found in enumerate(sums) if found != sums[rank % shards]), None)
    if odd is not None:
        first = odd % shards
        raise HpcddpError(
            f"After {steps} steps the parameters of rank {odd} and rank {first} differ ({sums[odd]}, {sums[first]}). "
            f"No checkpoint was written. Check whether the model is called outside DDP."
        )


def _to_all(group: ProcessGroup, data: bytes) -> bytes:
    """Rank 0's bytes, in every rank: one rank reads the file, and all go on from the same."""
    size: int = group.share("checkpoint's bytes", len(data))
    if not size or group.rank.world == 1:
        return data
    own = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(size, dtype=torch.uint8)
    shared = own.to(group.device)
    dist.broadcast(shared, 0)
    return bytes(to_bytes(shared))


def _random(device: torch.device) -> dict[str, Any]:
    """This rank's random numbers to come, torch's and Python's, as JSON takes it."""
    version, words, gauss = random.getstate()
    return {
        "torch": to_bytes(torch.get_rng_state()).hex(),
        "cuda": to_bytes(torch.cuda.get_rng_state(device)).hex() if device.type == "cuda" else None,
        "python": [version, list(words), gauss],
    }


def _restore_random(draws: dict[str, Any], device: torch.device) -> None:
    version, words, gauss = draws["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(_bytes(draws["torch"]))
    if draws["cuda"] is not None:
        torch.cuda.set_rng_state(_bytes(draws["cuda"]), device)


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8).clone()
