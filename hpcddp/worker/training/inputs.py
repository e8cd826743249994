"""From a loader to what a step trains on: the batches of all epochs in a row, pixels normalised on the device."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Generator, Sequence

import torch

from hpcddp.data import Batch, TrainLoader
from hpcddp.data.source import to_bytes


def endless(loader: TrainLoader, watch: OrderWatch, first_step: int = 0) -> Generator[Batch, None, None]:
    """The loader's batches, epoch after epoch, without those of the run's steps before `first_step`. `watch` learns nothing of an
    epoch that is resumed in its middle: it did not begin with these batches."""
    begun, skipped = loader.plan.epoch_at(first_step)
    watch.epochs = begun
    for epoch in itertools.count(begun):
        watch.begin_epoch()
        for batch in loader.epoch(epoch, skipped):
            if not skipped:
                watch.note(batch)
            yield batch
        skipped = 0


class OrderWatch:
    """Notices an epoch that begins as the one before it: a rank whose data are not reshuffled.

    It stores a CRC of the labels and the first image of each of an epoch's first batches (some 0.1 ms each for 224 x 224).
    Where these batches are all alike, as with a user's data of zeros, their order does not show and nothing is concluded.
    """

    BATCHES = 16
    SAMPLES = 8
    """With fewer samples in common, a small data set may well repeat them by chance: nothing is concluded."""

    def __init__(self) -> None:
        self.epochs = 0
        self._repeated: int | None = None
        self._before: list[int] = []
        self._now: list[int] = []
        self._samples = 0

    @property
    def repeated(self) -> int | None:
        """The first epoch (from 0) that began as the one before it, so far; None while there is none."""
        return self._repeated if self._repeated is not None else self._repeats()

    def begin_epoch(self) -> None:
        self._repeated = self.repeated
        self._before, self._now, self._samples = self._now, [], 0
        self.epochs += 1

    def note(self, batch: Batch) -> None:
        if len(self._now) < self.BATCHES:
            images, labels = batch
            self._now.append(zlib.crc32(to_bytes(images[:1]), zlib.crc32(to_bytes(labels))))
            self._samples += len(labels)

    def _repeats(self) -> int | None:
        same = self._now == self._before[: len(self._now)]
        telling = len(set(self._before)) > 1 and self._samples >= self.SAMPLES
        return self.epochs - 1 if same and telling else None


class Normalize:
    """uint8 pixels (N x C x H x W) to (x / 255 - mean) / std in `dtype`; other pixels only change to `dtype`."""

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], *, dtype: torch.dtype, device: torch.device, channels_last: bool
    ) -> None:
        self._mean = torch.tensor(mean, dtype=dtype, device=device).view(1, -1, 1, 1)
        self._std = torch.tensor(std, dtype=dtype, device=device).view(1, -1, 1, 1)
        self._dtype = dtype
        self._layout = torch.channels_last if channels_last else torch.contiguous_format

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.to(self._dtype, memory_format=self._layout)
        if images.dtype == torch.uint8:
            return pixels.div_(255).sub_(self._mean).div_(self._std)
        return pixels


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Both tensors on the device; from pinned memory the host does not wait for the copy."""
    images, labels = batch
    return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
