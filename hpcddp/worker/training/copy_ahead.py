"""Copies each batch to the GPU while the step before it trains."""

from __future__ import annotations

from typing import NamedTuple

import torch

from hpcddp.data import Batch, TrainLoader
from hpcddp.worker.timing.clock import Stamp
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.inputs import OrderWatch, endless, to_device


class _Copy(NamedTuple):
    batch: Batch
    begin: Stamp
    end: Stamp
    """Both in the copy stream."""


class CopyAheadFeed:
    """A loader's batches, each copied from pinned memory on a stream of its own, one step before it is trained on.

    `h2d_exposed` is what the compute stream still waits for, `h2d_hidden` the rest of the copy. `data_wait` is for the batch of
    the step after, but for an epoch's first: that is taken when its step begins, so that no epoch begins before its time.
    """

    def __init__(self, loader: TrainLoader, device: torch.device, first_step: int = 0) -> None:
        self.plan = loader.plan
        self.loader = loader
        self.watch = OrderWatch()
        self._batches = endless(loader, self.watch, first_step)
        self._device = device
        # Of the usual priority there are 32 in all, given out in turn (c10/cuda/CUDAStream.h), to callbacks of all-reduces, too:
        # a copy would wait for an exchange, and the end of an exchange be timed behind a copy.
        self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._taken = first_step
        self._ahead: _Copy | None = None

    def next(self, timer: StepTimer) -> Batch:
        copy = self._ahead or self._begin(timer)
        self._ahead = self._begin(timer) if self.plan.epoch_at(self._taken)[1] else None
        timer.mark("data_wait")
        compute = torch.cuda.current_stream(self._device)
        compute.wait_event(copy.end)
        for part in copy.batch:
            part.record_stream(compute)  # its memory came from the copy stream, which does not know when training is done with it
        timer.mark("h2d_exposed")
        timer.copied(copy.begin, copy.end)
        return copy.batch

    def close(self) -> None:
        self._batches.close()

    def _begin(self, timer: StepTimer) -> _Copy:
        batch = next(self._batches)
        self._taken += 1
        with torch.cuda.stream(self._stream):
            begin = timer.clock.stamp()
            batch = to_device(batch, self._device)
            return _Copy(batch, begin, timer.clock.stamp())
