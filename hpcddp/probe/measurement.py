"""The context manager of a measured loop: begins and ends steps, writes their rows, and the run's records at its end."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import AFTER_PAUSE, PARTS, WARMUP
from hpcddp.probe.batches import batches
from hpcddp.probe.group import group_of_job, script_group
from hpcddp.probe.script_point import Wanted, point_in_job, read_facts, samples_of, script_point
from hpcddp.probe.script_run import ScriptRun, adhoc_place, place_in_job
from hpcddp.probe.step_hooks import StepHooks, find_ddp
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.script_job import current_job
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.losses import loss_reader_for
from hpcddp.worker.timing.steptimer import StepTimer


def measure(  # noqa: PLR0913 - a user's words
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    samples_per_step: int,
    iterations_per_step: int = 1,
    warmup_steps: int = 50,
    steps: int = 500,
    tokens_per_step: int | None = None,
    flops_per_step: float | None = None,
) -> Measurement:
    """Measures the loop inside `with measure(...) as steps: for batch in steps(loader): ...`, and ends it when enough is known.

    model: as the loop calls it, after DDP, torch.compile or whatever else went around it; on its device already.
    optimizer: one, or all of them.
    samples_per_step: of this rank, in a step.
    iterations_per_step: of the loop in a step, where gradients of several batches add up before the optimizer's step.
    warmup_steps, steps: before timing begins, and timed.
    tokens_per_step: of this rank, in a step: a second rate beside samples.
    flops_per_step: floating-point operations of this rank's forward and backward in a step.

    HpcddpError says what cannot be measured; the training itself never fails of it once steps are made.
    """
    wanted = Wanted(
        samples_per_step=samples_per_step,
        iterations_per_step=iterations_per_step,
        warmup_steps=warmup_steps,
        steps=steps,
        tokens_per_step=tokens_per_step,
        flops_per_step=flops_per_step,
    )
    return Measurement(model, [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer), wanted)


class Measurement:
    """What `measure` gives; called with a loader it gives the loop its batches."""

    def __init__(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], wanted: Wanted) -> None:
        self._model, self._optimizers, self._wanted = model, optimizers, wanted
        first = next(model.parameters(), None)
        if first is None:
            raise HpcddpError("the model has no parameters: nothing is trained")
        self._device = first.device
        self._job = current_job()
        if self._job:
            self._job.begin()
        self._group = group_of_job(self._job, self._device) if self._job else script_group(self._device)
        kind = self._device.type
        self._timer = StepTimer(clock_for(kind), first_step=-1, losses=loss_reader_for(kind))
        self._hooks: StepHooks | None = None
        self._hooked = False
        self._run: ScriptRun | None = None
        self._began = False

    def __enter__(self) -> Measurement:
        self._hooks = StepHooks(self._model, self._optimizers, self._timer.mark)
        self._hooked = self._hook_buckets()
        return self

    def __call__(self, loader: Any) -> Iterator[Any]:
        """The loader's batches, from its beginning again where it ends too soon, until enough steps are measured.

        A first step comes before those that are counted: it shows what the records must say of the workload.
        """
        if self._hooks is None:
            raise HpcddpError("steps(loader) is called inside `with measure(...) as steps:`")
        if self._began:
            raise HpcddpError("steps(loader) was called before: a measurement is of one loop, so begin another one")
        self._began = True
        source = batches(loader)
        if not (yield from self._step(source)):
            return
        self._close_step(0)
        list(self._timer.drain())  # what it was is known now, and it counts nowhere
        self._run = self._begin(loader)
        yield from self._measured(source, self._run)

    def _begin(self, loader: Any) -> ScriptRun:
        assert self._hooks is not None
        wanted, group, hooked = self._wanted, self._group, self._hooked
        facts = read_facts(wanted, self._model, loader, group, autocast=self._hooks.autocast, exchanges=self._hooks.exchanges)
        if self._job:
            place = place_in_job(self._job, point_in_job(self._job, facts, hooked))
        else:
            place = adhoc_place(script_point(wanted, facts, group, hooked=hooked), group)
        return ScriptRun(place, group, self._model, self._timer, samples_of(loader))

    def _measured(self, source: Iterator[Any], run: ScriptRun) -> Iterator[Any]:
        """Warm-up and timed steps; in a pause the device's queue is drained, as in hpcddp's own loop."""
        for stretch in run.stretches():
            after_pause = AFTER_PAUSE
            for step in stretch:
                if not (yield from self._step(source)):
                    return
                run.log.write_finished()
                self._close_step(after_pause | (WARMUP if step < run.window.timed_from else 0))
                after_pause = 0
                run.steps = step + 1

    def _step(self, source: Iterator[Any]) -> Generator[Any, None, bool]:
        """The batches of one step, which stays open; False where there are none left."""
        for _ in range(self._wanted.iterations_per_step):
            try:
                batch = next(source)
            except StopIteration:
                return False
            self._timer.mark("data_wait")
            yield batch
            self._timer.mark("other")
        return True

    def _close_step(self, flags: int) -> None:
        self._timer.mark("record")
        self._timer.close_step(flags)

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of a step, which it gives back: it stands in the records, and one that is not finite fails the run.

        Called before backward() it also says where forward ends, so that computing the loss belongs to it.
        """
        if self._hooks and self._hooks.backward_is_due:
            self._timer.mark("forward")
        self._timer.loss(loss.detach())
        return loss

    def mark(self, part: str) -> None:
        """The time since the last mark was of that part: data_wait, h2d_exposed, forward, backward, comm_exposed or optimizer."""
        if part not in PARTS:
            raise HpcddpError(f"no part of a step is called {part!r}: {', '.join(PARTS)}")
        self._timer.mark(part)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._hooks:
            self._hooks.remove()
        self._timer.ignore_buckets()
        if self._run is None:
            if kind is None:
                print("hpcddp: nothing was measured: the loop must take its batches from steps(loader)", file=sys.stderr)
            return
        if error is None:
            self._run.finish(
                self._hooks.optimizer_steps if self._hooks else 0,
                tokens_per_step=self._wanted.tokens_per_step,
                flops_per_sample=self._wanted.flops_per_sample,
            )
        else:
            self._run.fail(error)

    def _hook_buckets(self) -> bool:
        """Whether DDP's all-reduces are timed: not where the script has a communication hook of its own, nor where its sweep does
        not ask for it.
        """
        ddp, off = find_ddp(self._model), self._job is not None and self._job.spec.point.measure.comm == "off"
        if ddp is None or off:
            return False
        try:
            time_buckets(ddp, self._timer)
        except RuntimeError:  # DDP takes one hook
            return False
        return True
