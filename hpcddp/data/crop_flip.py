"""Small images cropped and mirrored at random, a batch at a time, to the same bytes on every device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.data.sampling import generator_for
from hpcddp.data.source import Batch, FactsSource, TensorSource

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
        """The images as they are."""
        return self.source.batch(indices)

    def drawn_batch(self, indices: Tensor, draw: str) -> Batch:
        """Each image as `draw` crops it."""
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
