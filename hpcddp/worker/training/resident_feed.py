"""Batches of a data set that lies on the device."""

from __future__ import annotations

from hpcddp.data import Batch, TrainLoader
from hpcddp.data.resident import ResidentData
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.inputs import OrderWatch, endless


class ResidentDataFeed:
    """Gathers each batch on the device when its step begins: nothing is copied but the samples' places.

    `places`: the loader of what Places has of the data set; the rank runs it itself.
    """

    def __init__(self, data: ResidentData, places: TrainLoader, first_step: int = 0) -> None:
        self.plan = places.plan
        self.watch = OrderWatch()
        self._places = endless(places, self.watch, first_step)
        self._data = data

    def next(self, timer: StepTimer) -> Batch:
        batch = self._data.batch(next(self._places))
        timer.mark("data_wait")
        return batch

    def close(self) -> None:
        self._places.close()
