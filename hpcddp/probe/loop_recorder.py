"""Records the steps of a training loop, whoever runs it: a user's own `for`, or a framework that calls back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import AFTER_PAUSE, WARMUP
from hpcddp.probe.checkpoints import FrameworkCheckpoints, Save, ScriptCheckpoints, checkpoints_of
from hpcddp.probe.flop_count import StepFlops, step_flops
from hpcddp.probe.profiled_window import ProfiledWindow
from hpcddp.probe.script_point import Wanted, job_group, point_in_job, read_facts, samples_per_epoch, script_group, script_point
from hpcddp.probe.script_run import ScriptRun, adhoc_place, place_in_job
from hpcddp.probe.step_hooks import BatchSize, FirstStep, StepHooks
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.script_job import current_job
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steptimer import StepTimer, loss_reader_for


class LoopRecorder:
    """Of one model and its optimizers; all ranks make it, and call `end_step` equally often."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        wanted: Wanted,
        save: Save | None = None,
        checkpoints: ScriptCheckpoints | None = None,
    ) -> None:
        """`save`: writes a checkpoint of the script, where it can; not needed where `checkpoints` were read before."""
        first = next(model.parameters(), None)
        if first is None:
            raise HpcddpError("the model has no parameters to train")
        self._model, self._optimizers, self._wanted = model, [_of_torch(each) for each in optimizers], wanted
        self._job = current_job()
        if self._job:
            self._job.begin()
        self._group = job_group(self._job, first.device) if self._job else script_group(first.device)
        kind = first.device.type
        self._checkpoints = checkpoints or checkpoints_of(self._job, self._group, save)
        first_step = self._checkpoints.first_step if self._checkpoints else 0
        self.timer = StepTimer(clock_for(kind), first_step=first_step - 1, losses=loss_reader_for(kind))
        if self._checkpoints:
            self._checkpoints.timer = self.timer
        self.checkpoint_dir = self._checkpoints.folder if self._checkpoints else None
        self.mark = self.timer.mark
        self.in_sweep = self._job is not None
        self.source: Any = None
        """The iterator that the loop takes batches from now."""
        self.loader: Any = None
        """Where batches come from, for the records; set before the first step ends."""
        self.batch_size = BatchSize(wanted.samples_per_step // wanted.iterations_per_step)
        self._samples: int | None = 0
        """Of the open step so far; None where a batch does not show its own."""
        self._least_and_most: tuple[int, int] | None = None
        """Samples of a step."""
        self._optimizer_steps = 0
        """When the last step ended."""
        self.done = False
        """Enough is measured, and all records are written: what the loop does now is of no run."""
        self._sequence = StepSequence(self.timer, self._begin)
        self._flops: StepFlops | None = None
        self._watched_flops: StepFlops | None = None
        """The same until the warm-up is over."""

    def start(self, *, watches_calls: bool = True) -> None:
        """From now on. `watches_calls`: the loop calls the model itself; else the hooks' `computed` is to be called."""
        self.hooks = StepHooks(self._model, self._optimizers, self.mark, watches_calls=watches_calls)
        self._first_step = FirstStep(self._model)
        self._times_buckets = self._hook_buckets()
        if self._group.rank.rank == 0 and self._wanted.flops_per_step is None:
            self._flops = self._watched_flops = step_flops(self._model, self._optimizers)

    def begin_epoch(self, loader: Any) -> None:
        """The loop is about to begin the loader, which is part of the first step."""
        self.loader = loader
        self.timer.resume()

    def begin_batch(self) -> None:
        """The loop has its batch, or all those of a step."""
        self.mark("data_wait")
        if self._watched_flops:
            self._watched_flops.begin_batch()

    def end_batch(self) -> None:
        """The loop is done with it."""
        self.mark("other")
        if self._watched_flops:
            self._watched_flops.end_batch()

    def count(self, batch: Any) -> None:
        """One of the open step's batches: its samples are the step's."""
        size = self.batch_size.of(batch, self.loader)
        self._samples = None if size is None or self._samples is None else self._samples + size

    def end_step(self) -> bool:
        """The step is over; whether enough are measured, and all records written."""
        if self._samples:
            least, most = self._least_and_most or (self._samples, self._samples)
            self._least_and_most = min(least, self._samples), max(most, self._samples)
        over = self._sequence.close(self._samples or self._wanted.samples_per_step)
        self._samples, self._optimizer_steps = 0, self.hooks.optimizer_steps
        if self._watched_flops:
            self._watch_warmup(self._watched_flops)
        if over:
            self.finish()
        return over

    def leave(self) -> None:
        """The loop asks for no further batch now: the open step is one where the optimizer has made it, and else forgotten."""
        if self.timer.in_step and self.hooks.optimizer_steps > self._optimizer_steps:
            self.end_batch()
            self.end_step()
        self.timer.discard()
        self._halt()

    def end_epoch(self) -> None:
        """The loader has no further batch. To learn that, and to end its workers, is waiting for data."""
        if self.timer.in_step:
            self.leave()  # gradients of fewer batches than a step has
            return
        self.mark("data_wait")
        self._halt()

    def _halt(self) -> None:
        self._samples = 0
        if not self.done:
            self._sequence.halt()

    def pause(self) -> None:
        """What passed since the last mark is of no step, as an evaluation is not."""
        self._sequence.pause()

    def loss(self, loss: torch.Tensor) -> None:
        self.timer.loss(loss.detach())

    def finish(self) -> None:
        """The loop is over, or enough is measured: all records, once."""
        if self.done:
            return
        self.done = True
        self._remove()
        if self._sequence.run is None:
            print("hpcddp: nothing was measured. Take the loop's batches from steps(loader).", file=sys.stderr)
            return
        given = self._wanted
        self._sequence.run.finish(
            self.hooks.optimizer_steps,
            tokens_per_step=given.tokens_per_step,
            flops_per_sample=given.per_sample(given.flops_per_step or (self._flops.of_step if self._flops else None)),
            samples=self._least_and_most,
        )
        if self._group.rank.rank == 0:
            if self.hooks.optimizer_steps and not self.hooks.backwards:
                print(UNNOTICED, file=sys.stderr)
            if not self.batch_size.has_tensors:
                print(UNFETCHED, file=sys.stderr)

    def fail(self, error: BaseException) -> None:
        if self.done:
            return
        self._remove()
        if self._sequence.run:
            self._sequence.run.fail(error)

    def _remove(self) -> None:
        self._sequence.end()
        self.hooks.remove()
        self._first_step.end()
        self.timer.ignore_buckets()
        if self._flops:
            self._flops.end()

    def _watch_warmup(self, flops: StepFlops) -> None:
        """Operations are counted in the first step; those of later ones are as many where the model is given the same shapes."""
        run = self._sequence.run
        flops.end_step()
        if run is None or run.steps >= run.window.timed_from:
            flops.end()
            self._watched_flops = None

    def _begin(self) -> ScriptRun:
        """Behind the first step."""
        self._first_step.end()
        self._times_buckets = self._times_buckets or self._hook_buckets()
        wanted, group, hooked = self._wanted, self._group, self._times_buckets
        autocast, exchanges = self._first_step.autocast, self.hooks.exchanges
        facts = read_facts(wanted, self._model, self.loader, group, autocast=autocast, exchanges=exchanges)
        if self._job:
            place = place_in_job(self._job, point_in_job(self._job, facts, hooked))
        else:
            place = adhoc_place(script_point(wanted, facts, group, hooked=hooked), group)
        samples = samples_per_epoch(self.loader)
        times_buckets = place.spec.point.measure.comm != "off" and (hooked or group.rank.world == 1)
        return ScriptRun(place, group, self._model, self.timer, samples, checkpoints=self._checkpoints, hooked=times_buckets)

    def _hook_buckets(self) -> bool:
        """Whether DDP's all-reduces are timed: not where the script has a hook of its own, nor where its sweep does not ask."""
        ddp, off = self._first_step.ddp, self._job is not None and self._job.spec.point.measure.comm == "off"
        if ddp is None or self.hooks.exchanges:
            return False
        self.hooks.exchanges = True
        if off:
            return False
        try:
            time_buckets(ddp, self.timer)
        except RuntimeError:  # DDP takes one hook
            return False
        return True


UNNOTICED = (
    "hpcddp: no backward of the model was detected, so its time is in `other`. Pass measure() the module that the loop calls, "
    'or mark the end of each part: steps.mark("forward"), steps.mark("backward").'
)

UNFETCHED = (
    "hpcddp: steps() yields no tensors, so the loop fetches its own batches, and data_wait lacks that time. "
    'Pass steps() the loader, or mark the end of each fetch: steps.mark("data_wait").'
)


def _of_torch(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """What a framework's optimizer, such as Accelerate's, has inside."""
    inner = getattr(optimizer, "optimizer", None)
    return _of_torch(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


class StepSequence:
    """`begin` makes the run's records when the first step has shown what they must say."""

    def __init__(self, timer: StepTimer, begin: Callable[[], ScriptRun]) -> None:
        self._timer = timer
        self._begin = begin
        self._planned: Generator[int, None, None] | None = None
        self._paused = True
        """The open step is the first after a pause."""
        self._profiled: ProfiledWindow | None = None
        """Once all steps that count are made, where some more are profiled."""
        self.run: ScriptRun | None = None

    def close(self, samples: int) -> bool:
        """The open step is over, of so many samples; whether all are made."""
        if self._profiled:
            self._close(0)
            return self._profiled.end_step()
        if self.run is None:
            self._close(0)
            list(self._timer.drain())  # what it was is known now, and it counts nowhere
            self.run = self._begin()
            self._planned = self._steps(self.run)
        else:
            self.run.log.write_finished()
            warmup = WARMUP if self.run.steps < self.run.window.timed_from else 0
            self._close((AFTER_PAUSE if self._paused else 0) | warmup, samples)
            self._paused = False
            self.run.steps += 1
        over = self._planned is None or next(self._planned, None) is None
        return over and not self._begin_profile()

    def _begin_profile(self) -> bool:
        """Whether further steps are to be made."""
        if self.run and self.run.profiled and not self.run.window.interrupted:
            self._profiled = self.run.profiled
            self._profiled.begin()
        return self._profiled is not None

    def _steps(self, run: ScriptRun) -> Generator[int, None, None]:
        """Each as it is opened; in a pause before it the device's queue is drained, as in hpcddp's own loop."""
        for stretch in run.stretches():
            self._paused = True
            yield from stretch

    def pause(self) -> None:
        """What passed since the last mark is of no step: an evaluation, a checkpoint."""
        self.halt()
        self._timer.resume()

    def halt(self) -> None:
        """A pause begins; what is marked of the open step stays in it."""
        if self.run and not self._profiled:
            self.run.pause()
            self._paused = True

    def end(self) -> None:
        if self._planned:
            self._planned.close()
        if self._profiled:
            self._profiled.abort()

    def _close(self, flags: int, samples: int | None = None) -> None:
        self._timer.mark("record")
        self._timer.close_step(flags, samples)


class FrameworkCallback:
    """What callbacks of frameworks have in common; arguments are those of `measure`."""

    usage: str
    """How the framework is given a checkpoint."""

    def __init__(
        self,
        *,
        samples_per_step: int | None = None,
        warmup_steps: int = 50,
        steps: int = 500,
        tokens_per_step: int | None = None,
        flops_per_step: float | None = None,
    ) -> None:
        self._samples_per_step = samples_per_step
        self._wanted = partial(
            Wanted, warmup_steps=warmup_steps, steps=steps, tokens_per_step=tokens_per_step, flops_per_step=flops_per_step
        )
        self._checkpoints = FrameworkCheckpoints(self.usage)
        self._recorder: LoopRecorder | None = None
