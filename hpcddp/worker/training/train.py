"""The training loop: warm-up, then the timed steps, each timed part by part."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable

import torch

from hpcddp.core.point import Point
from hpcddp.core.records import AFTER_PAUSE, WARMUP
from hpcddp.data import Batch
from hpcddp.data.batches.read_clock import ReadClock
from hpcddp.worker.checksums import checksum
from hpcddp.worker.rank_result import Trained
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.training.backward import Mark
from hpcddp.worker.training.divergence import Divergence
from hpcddp.worker.training.epochs import EpochRecorder
from hpcddp.worker.training.feeds import Feed
from hpcddp.worker.training.optimizers import set_rate
from hpcddp.worker.training.rates import RateSchedule
from hpcddp.worker.training.resume import Checkpointer
from hpcddp.worker.training.trainer import Trainer
from hpcddp.worker.training.window import StepWindow

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
    """What a rank has of all its steps."""
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
    """On CUDA what tensors took of the GPU (`allocated`) and what torch kept for them (`reserved`); on a CPU what the process
    had of the node's memory (`resident`), its loader processes not counted. The most since the process began.
    """
    if device.type == "cuda":
        return {"allocated": torch.cuda.max_memory_allocated(device), "reserved": torch.cuda.max_memory_reserved(device)}
    return {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}  # KiB on Linux: getrusage(2)
