"""The context manager of a measured loop: gives it its batches, and ends it when enough is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import PARTS
from hpcddp.probe.batches import batches
from hpcddp.probe.checkpoints import Save
from hpcddp.probe.loop_recorder import LoopRecorder
from hpcddp.probe.script_point import Wanted


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
    """Measures the loop inside `with measure(...) as steps: for batch in steps(loader): ...`, and ends it when enough is known.

    model: as the loop calls it, after DDP, torch.compile or whatever else went around it; on its device already.
    optimizer: one, or all of them.
    samples_per_step: of this rank, in a step.
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
            f"measure(model, ...): {type(model).__name__} is no torch.nn.Module; give the one that the loop calls, or "
            f"torch.nn.ModuleList([...]) of several"
        )
    return Measurement(model, _optimizers(optimizer), wanted, save_checkpoint)


def _optimizers(given: Any) -> list[torch.optim.Optimizer]:
    """One, or several in whatever holds them; HpcddpError of anything else."""
    found = list(given) if isinstance(given, Iterable) else [given]
    for each in found:
        if not isinstance(each, torch.optim.Optimizer):
            name = type(each).__name__
            raise HpcddpError(
                f"measure(model, optimizer): {name} is no torch.optim.Optimizer; give the optimizer, or a list of all"
            )
    return found


class Measurement:
    """What `measure` gives; called with a loader it gives the loop its batches."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], wanted: Wanted, save: Save | None = None
    ) -> None:
        self._recorder = LoopRecorder(model, optimizers, wanted, save)
        self._iterations_per_step = wanted.iterations_per_step
        self._entered = self._began = False

    def __enter__(self) -> Measurement:
        self._recorder.start()
        self._entered = True
        return self

    def __call__(self, loader: Any) -> Iterator[Any]:
        """The loader's batches, from its beginning again where it ends too soon, until enough steps are measured.

        A first step comes before those that are counted: it shows what the records must say of the workload.
        """
        if not self._entered:
            raise HpcddpError("steps(loader) is called inside `with measure(...) as steps:`")
        if self._began:
            raise HpcddpError(
                "steps(loader) was called before: a measurement is of one loop, which takes the loader from its beginning again "
                "by itself; leave out the loop over epochs around it, or begin another measurement"
            )
        self._began = True
        recorder = self._recorder
        recorder.loader = loader
        for iteration, batch in enumerate(batches(loader), start=1):
            recorder.begin_batch()
            yield batch
            recorder.end_batch()
            if iteration % self._iterations_per_step == 0 and recorder.end_step():
                return

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
        if error is None:
            self._recorder.finish()
        else:
            self._recorder.fail(error)
