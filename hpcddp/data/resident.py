"""A data set that lies on the device where it is trained on: batches are gathered there, and only their places travel."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from hpcddp.core.errors import HpcddpError
from hpcddp.data.crop_flip import CroppedSource, cropped
from hpcddp.data.source import Batch, Source, TensorSource

LABEL_BYTES = 8
"""int64, as a batch has it."""


class Places:
    """In place of each sample of a source its index, and the crop that is drawn for it where the source crops.

    A batch is (crops, indices); crops are indices once more where there are none.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.shape, self.classes = source.shape, source.classes
        self.mean, self.std = source.mean, source.std

    def __len__(self) -> int:
        return len(self._source)

    def batch(self, indices: Tensor) -> Batch:
        return indices, indices

    def drawn_batch(self, indices: Tensor, draw: str) -> Batch:
        """Like `batch`, with the crops that the source takes for `draw`."""
        return (self._source.crops(indices, draw) if isinstance(self._source, CroppedSource) else indices), indices


class ResidentData:
    """The samples of `source` on `device`; HpcddpError where they do not fit there."""

    def __init__(self, source: Source, device: torch.device) -> None:
        self._crops = isinstance(source, CroppedSource)
        images, labels = tensors_of(source)
        _check_room(resident_bytes(source.shape, len(source)), device)
        self._images, self._labels = images.to(device), labels.to(device)
        self._device = device

    def batch(self, places: Batch) -> Batch:
        """The samples at `places`, as Places has them; on CUDA the host waits for nothing."""
        crops, indices = places
        there = indices.to(self._device, non_blocking=True)
        batch = self._images.index_select(0, there), self._labels.index_select(0, there)
        return cropped(batch, crops) if self._crops else batch


def tensors_of(source: Source) -> tuple[Tensor, Tensor]:
    """Images and labels of a source that is in memory."""
    held = source.source if isinstance(source, CroppedSource) else source
    if not isinstance(held, TensorSource):
        raise HpcddpError(f"data of the kind {type(held).__name__} are not held in memory: set workload.data.resident to false")
    return held.images, held.labels


def resident_bytes(shape: tuple[int, int, int], samples: int) -> int:
    """What `samples` images of `shape`, a byte a value, take with their labels."""
    return samples * (prod(shape) + LABEL_BYTES)


def _check_room(needed: int, device: torch.device) -> None:
    """On a CPU the rank holds the data set in any case."""
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise HpcddpError(
            f"the data set takes {needed / 2**20:,.0f} MiB of GPU {device.index}, where {free / 2**20:,.0f} MiB are free: "
            f"set workload.data.resident to false"
        )
