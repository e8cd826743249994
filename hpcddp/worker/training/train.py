"""The training loop: warm-up, then the timed steps, each timed part by part.

A loss that is infinite or not a number ends the run, in the name of the rank and the step where it came first.

A rank notices its own when it writes the row of that step: within AT_ONCE steps, or half a second. It cannot stop then: the
all-reduce has spread it to the others, and any of them may write its rows first. So it reports it in the store and makes more
steps, until every rank has noticed.
"""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Callable
from datetime import timedelta

import torch

from hpcddp.core.point import Point
from hpcddp.core.records import AFTER_PAUSE, WARMUP
from hpcddp.data import Batch
from hpcddp.data.read_clock import ReadClock
from hpcddp.worker.checksums import checksum
from hpcddp.worker.faults import DivergedError
from hpcddp.worker.rank_result import Trained
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steplog import AT_ONCE, StepLog
from hpcddp.worker.training.backward import Mark
from hpcddp.worker.training.epochs import EpochRecorder
from hpcddp.worker.training.feeds import Feed
from hpcddp.worker.training.optimizers import RateSchedule, set_rate
from hpcddp.worker.training.resume import Checkpointer
from hpcddp.worker.training.trainer import Trainer
from hpcddp.worker.training.window import StepWindow

MORE_STEPS = 2 * AT_ONCE
"""Made for the others to notice theirs, at most: each writes its rows every AT_ONCE steps, or half a second."""

OTHERS_S = 5.0
"""Waited in a pause, where no more steps follow, for the others to come there."""


class Divergence:
    """Of one rank's losses; all ranks have one."""

    def __init__(self, group: ProcessGroup, log: StepLog) -> None:
        self._group, self._log = group, log
        self._keys = [f"hpcddp/diverged/{peer}" for peer in range(group.rank.world)]
        self._steps_since: int | None = None

    def check(self, *, pause: bool = False) -> None:
        """After a step, and in a pause of all ranks; DivergedError once all have noticed, or there was time enough for it."""
        if self._log.not_finite is None:
            return
        if self._steps_since is None:
            (step, loss), rank = self._log.not_finite, self._group.rank
            self._group.store.set(self._keys[rank.rank], json.dumps([step, rank.rank, rank.host, str(loss)]))
            self._steps_since = 0
        self._steps_since += 1
        if pause:
            with contextlib.suppress(RuntimeError):
                self._group.store.wait(self._keys, timedelta(seconds=OTHERS_S))
        if pause or self._steps_since > MORE_STEPS or self._group.store.check(self._keys):
            raise self._error()

    def _error(self) -> DivergedError:
        store = self._group.store
        reports = sorted(json.loads(store.get(key)) for key in self._keys if store.check([key]))
        step, rank, host, loss = reports[0]
        others = f", and that of {len(reports) - 1} other rank(s) from there on" if len(reports) > 1 else ""
        return DivergedError(
            rank,
            host,
            f"the loss of step {step} is {loss}{others}: training diverged. Lower workload.optimizer.lr, or check its data.",
        )


Work = Callable[[Batch, Mark], torch.Tensor | None]


def train(  # noqa: PLR0913 - what a step needs, and where steps begin and end
    point: Point,
    trainer: Trainer,
    feed: Feed,
    log: StepLog,
    group: ProcessGroup,
    *,
    checkpointer: Checkpointer | None = None,
    epochs: EpochRecorder | None = None,
    clock: ReadClock | None = None,
) -> Trained:
    """Makes the point's steps and writes a row for each; what is done between two stretches of steps is not timed.

    `checkpointer`: of a run that resumes; it says where to begin, and ends the steps early when the ranks are told to stop.
    `epochs`: of `work: train`; it may end the run when an epoch has ended. `clock`: of the loader,
    which counts from the timed steps on.
    """
    window = StepWindow(point, feed.plan, log.times_ns, group, checkpointer)
    work = work_of(point, trainer)
    rates = RateSchedule(point, feed.plan)
    divergence, timer, timed_from = Divergence(group, log), log.timer, window.timed_from
    checksums = {"at the start": checksum(trainer.module.parameters())}
    trainer.model.train()
    if epochs:
        epochs.begin(window.first_step)
        if epochs.target_reached:
            window.end(window.first_step, "target_accuracy")
    set_rate(trainer.optimizer, rates.rate(window.first_step))
    with log, contextlib.closing(window.stretches()) as stretches:
        for stretch in stretches:
            after_pause = AFTER_PAUSE if stretch.start else 0
            timer.restart()
            for step in stretch:
                batch = feed.next(timer)
                if rates.varies:
                    set_rate(trainer.optimizer, rates.rate(step))
                loss = work(batch, timer.mark)
                log.write_finished()  # of earlier steps: this one's row is part of the next one's record_ns
                timer.mark("record")
                if loss is not None:
                    timer.loss(loss)
                timer.close_step(after_pause | (WARMUP if step < timed_from else 0))
                after_pause = 0
                divergence.check()
            log.pause()
            divergence.check(pause=True)
            if stretch.stop == timed_from - 1:
                checksums[f"after step {stretch.stop}"] = checksum(trainer.module.parameters())
                if clock:
                    clock.begin()
            if epochs:
                epochs.close(stretch.stop)
                if epochs.target_reached:
                    window.end(stretch.stop, "target_accuracy")
                if epochs.interrupted:
                    window.interrupt(stretch.stop)
    checksums["at the end"] = checksum(trainer.module.parameters())
    return _trained(window, log, feed, checksums=checksums, device=trainer.device)


def work_of(point: Point, trainer: Trainer) -> Work:
    """What a step does with its batch."""
    return _nothing if point.measure.input == "io" else trainer.step


def _trained(window: StepWindow, log: StepLog, feed: Feed, *, checksums: dict[str, str], device: torch.device) -> Trained:
    return Trained(
        first_step=window.first_step,
        steps=window.steps,
        interrupted=window.interrupted,
        **log.counts(),
        loss_first=log.loss_first,
        loss_last=log.loss_last,
        finite=log.not_finite is None,
        checksums=checksums,
        epochs=feed.watch.epochs,
        repeated_epoch=feed.watch.repeated,
        protocol=window.record(),
        peak_memory_bytes=peak_memory_bytes(device),
    )


def _nothing(batch: Batch, mark: Mark) -> None:
    """What `input: io` does with a batch: it has been loaded and copied, and that was all."""


def peak_memory_bytes(device: torch.device) -> dict[str, int]:
    """On CUDA what tensors took of the GPU (`allocated`) and what torch kept for them (`reserved`); on a CPU what the process had
    of the node's memory (`resident`), its loader processes not counted. The most since the process began."""
    if device.type == "cuda":
        return {"allocated": torch.cuda.max_memory_allocated(device), "reserved": torch.cuda.max_memory_reserved(device)}
    return {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}  # KiB on Linux: getrusage(2)
