"""The context manager of a measured training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import PARTS
from hpcddp.probe.checkpoints import Save
from hpcddp.probe.loop_recorder import LoopRecorder
from hpcddp.probe.script_point import Wanted
from hpcddp.worker.script_job import current_job


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
    save_checkpoint: Save | None = None,
) -> Measurement:
    """Measures the loops inside `with measure(...) as steps:`, each `for batch in steps(loader):`, until enough is known.

    model: as the loop calls it, after DDP, torch.compile or whatever else went around it; on its device already.
    optimizer: one, or all of them.
    samples_per_step: of this rank, in a full step; what each step had is counted by its batches.
    iterations_per_step: of the loop in a step, where gradients of several batches add up before the optimizer's step.
    warmup_steps, steps: before timing begins, and timed.
    tokens_per_step: of this rank, in a step: a second rate beside samples.
    flops_per_step: floating-point operations of this rank's forward and backward in a step; counted where they can be.
    save_checkpoint: in a sweep with `measure.resume`, called by every rank with a folder, to write what it needs to go on.

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
    if not isinstance(model, nn.Module):
        raise HpcddpError(
            f"measure(model, ...): {type(model).__name__} is not a torch.nn.Module. Pass the one that the loop calls, or "
            f"torch.nn.ModuleList([...]) of several."
        )
    job = current_job()
    if job and isinstance(job.measurement, Measurement) and job.measurement.goes_on(model):
        return job.measurement
    found = Measurement(model, _optimizers(optimizer), wanted, save_checkpoint)
    if job:
        job.measurement = found
    return found


def _optimizers(given: Any) -> list[torch.optim.Optimizer]:
    """One, or several in whatever holds them; HpcddpError of anything else."""
    found = list(given) if isinstance(given, Iterable) else [given]
    for each in found:
        if not isinstance(each, torch.optim.Optimizer):
            name = type(each).__name__
            raise HpcddpError(
                f"measure(model, optimizer): {name} is not a torch.optim.Optimizer. Pass the optimizer, or a list of all."
            )
    return found


class Measurement:
    """What `measure` gives; called with a loader it gives an epoch its batches."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], wanted: Wanted, save: Save | None = None
    ) -> None:
        self._model = model
        self._recorder = LoopRecorder(model, optimizers, wanted, save)
        self._iterations_per_step = wanted.iterations_per_step
        self._entered = False

    def __enter__(self) -> Measurement:
        if not self._entered:
            self._recorder.start()
        self._entered = True
        return self

    def goes_on(self, model: nn.Module) -> bool:
        """Whether it is of this model: a sweep's script may call `measure` in each epoch, and all of them are one measurement."""
        return self._model is model

    def __call__(self, loader: Iterable[Any], *, samples: Callable[[Any], int] | None = None) -> LoopBatches:
        """The loader's batches, once, to be called again in each epoch: what lies between two calls is of no step.

        samples: how many a batch has, where its tensors do not show it. A first step, which counts nowhere, shows what the
        records must say of the workload.
        """
        if not self._entered:
            raise HpcddpError("call steps(loader) inside `with measure(...) as steps:`")
        if samples:
            self._recorder.batch_size.samples_of = samples
        return LoopBatches(self._recorder, loader, self._iterations_per_step)

    @property
    def done(self) -> bool:
        """Whether enough is measured: a loop that trains for nothing else may end."""
        return self._recorder.done

    @property
    def checkpoint_dir(self) -> Path | None:
        """What save_checkpoint wrote in an earlier attempt of the run, to be loaded before the loop; None where it begins."""
        return self._recorder.checkpoint_dir

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of a step, which it gives back: it stands in the records, and one that is not finite fails the run.

        Called before backward() it also says where forward ends, so that computing the loss belongs to it.
        """
        if self._recorder.hooks.backward_is_due:
            self._recorder.mark("forward")
        self._recorder.loss(loss)
        return loss

    def mark(self, part: str) -> None:
        """The time since the last mark was of that part: data_wait, h2d_exposed, forward, backward, comm_exposed or optimizer."""
        if part not in PARTS:
            raise HpcddpError(f"no part of a step is called {part!r}: {', '.join(PARTS)}")
        self._recorder.mark(part)
        if part == "backward":
            self._recorder.hooks.noticed_backward()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._recorder.fail(error)
            return
        self._recorder.leave()
        if not self._recorder.in_sweep:
            self.finish()

    def finish(self) -> None:
        """No further step is made: all records, once. In a sweep the script's end calls it."""
        self._recorder.finish()


class LoopBatches:
    """A loader's batches, as long as it is, where that has a length: `tqdm` and `len` find it."""

    def __init__(self, recorder: LoopRecorder, loader: Iterable[Any], iterations_per_step: int) -> None:
        self._recorder, self._loader, self._iterations_per_step = recorder, loader, iterations_per_step

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """All of them, measured until enough is. In a sweep the epoch ends there, and the script with the next one."""
        recorder = self._recorder
        if recorder.done and recorder.in_sweep:
            raise SystemExit(0)
        if recorder.done:
            yield from self._loader
            return
        recorder.begin_epoch(self._loader)
        source = recorder.source = iter(self._loader)
        for number, batch in enumerate(source, start=1):
            recorder.begin_batch()
            recorder.count(batch)
            try:
                yield batch
            except GeneratorExit:  # the loop was left
                if recorder.source is source:
                    recorder.leave()
                raise
            recorder.end_batch()
            if number % self._iterations_per_step == 0 and recorder.end_step():
                break
        else:
            recorder.end_epoch()
        if not recorder.in_sweep:
            yield from source
