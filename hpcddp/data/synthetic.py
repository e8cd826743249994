"""Made-up data of the known shapes: what a run costs when reading is free."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcddp.core.catalog import DatasetFacts
from hpcddp.data.sampling import generator_for
from hpcddp.data.source import GatheredSource, Split, Wait, at_once

POOL_BYTES = 32 << 20
"""Random images are drawn once; enough of them that a batch is not served from a core's own cache."""


class SyntheticSource(GatheredSource):
    """As many samples as the real set has, from a fixed pool of random images; equal images have equal labels."""

    def __init__(self, facts: DatasetFacts, split: Split) -> None:
        super().__init__(facts)
        self._samples = facts.train_samples if split == "train" else facts.eval_samples
        channels, height, width = facts.shape
        self._pool_size = min(self._samples, max(1, POOL_BYTES // (channels * height * width)))
        generator = generator_for("synthetic", split, facts.shape)
        images = torch.randint(256, (self._pool_size, *facts.shape), dtype=torch.uint8, generator=generator)
        self._rows = images.flatten(1)

    def __len__(self) -> int:
        return self._samples

    def gather(self, indices: Tensor, images: Tensor, labels: Tensor) -> Wait:
        where = indices % self._pool_size
        torch.index_select(self._rows, 0, where, out=images.flatten(1))
        torch.remainder(where, self.classes, out=labels)
        return at_once
