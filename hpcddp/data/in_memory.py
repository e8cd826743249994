"""Data sets in memory: small images cropped and mirrored at random, and data on the device, where only batches' places travel."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import thousands
from hpcddp.data.sampling import generator_for
from hpcddp.data.source import Batch, FactsSource, Source, TensorSource

PADDING = 4
"""Black pixels around an image before a crop of its own size is drawn: torchvision's RandomCrop(32, padding=4)."""

OFFSETS = 2 * PADDING + 1
"""Rows, and columns, at which a crop may begin."""

CROPS = 2 * OFFSETS**2
"""Different ones, half of them mirrored."""


class CroppedSource(FactsSource):
    """Training images, each cropped and mirrored anew in every epoch.

    Draws are made on the CPU whatever trains: one for each sample of the data set, so that a sample's depends on the draw and
    its index, and not on the rank or the batch.
    """

    def __init__(self, source: TensorSource) -> None:
        super().__init__(source)
        self.source = source
        self._drawn: tuple[str, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, indices: Tensor) -> Batch:
        return self.source.batch(indices)

    def drawn_batch(self, indices: Tensor, draw: str) -> Batch:
        return cropped(self.source.batch(indices), self.crops(indices, draw))

    def crops(self, indices: Tensor, draw: str) -> Tensor:
        """The crop of each of these samples in `draw`, as `crop_and_flip` takes it."""
        if self._drawn is None or self._drawn[0] != draw:  # once an epoch; 0.1 ms for CIFAR-10
            table = torch.randint(CROPS, (len(self),), generator=generator_for("crop and flip", draw), dtype=torch.uint8)
            self._drawn = draw, table
        return self._drawn[1].index_select(0, indices)


def cropped(batch: Batch, crops: Tensor) -> Batch:
    """The batch with the crop of each of its images."""
    images, labels = batch
    return crop_and_flip(images, crops), labels


def crop_and_flip(images: Tensor, crops: Tensor) -> Tensor:
    """Of each image (N x C x H x W), padded, the part that begins at row `crops // 2 // OFFSETS` and column
    `crops // 2 % OFFSETS`; mirrored where `crops` (N, of 0..CROPS-1) is odd.

    Rows and columns of a batch are one gather of bytes: of the ways there are in torch the fastest on a CPU.
    """
    count, channels, height, width = images.shape
    crop = crops.to(images.device, non_blocking=True).long().view(-1, 1)
    down = torch.arange(height, device=images.device) + crop // 2 // OFFSETS
    across = torch.arange(width, device=images.device)
    across = torch.where(crop % 2 == 1, width - 1 - across, across) + crop // 2 % OFFSETS
    within = (down * (width + 2 * PADDING)).unsqueeze(2) + across.unsqueeze(1)
    padded = functional.pad(images, (PADDING,) * 4).view(count, channels, -1)
    return padded.gather(2, within.view(count, 1, -1).expand(-1, channels, -1)).view(images.shape)


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
        raise HpcddpError(
            f"data of the kind {type(held).__name__} cannot be held in memory. Set workload.data.resident to false."
        )
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
            f"the data set takes {thousands(needed / 2**20)} MiB of GPU {device.index}, where {thousands(free / 2**20)} MiB "
            f"are free. Set workload.data.resident to false."
        )
