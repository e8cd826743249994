"""Made-up data of the known shapes: what a run costs when reading is free."""

from __future__ import annotations

import torch
from torch import Tensor

from hpcddp.core.catalog import DatasetFacts
from hpcddp.data.sampling import generator_for
from hpcddp.data.source import Batch, FactsSource, Split

POOL_BYTES = 32 << 20
"""Random images are drawn once; enough of them that a batch is not served from a core's own cache."""


class SyntheticSource(FactsSource):
    """As many samples as the real set has, from a fixed pool of random images; equal images have equal labels."""

    def __init__(self, facts: DatasetFacts, split: Split) -> None:
        super().__init__(facts)
        self._samples = facts.train_samples if split == "train" else facts.eval_samples
        channels, height, width = facts.shape
        self._pool_size = min(self._samples, max(1, POOL_BYTES // (channels * height * width)))
        generator = generator_for("synthetic", split, facts.shape)
        self._images = torch.randint(256, (self._pool_size, *facts.shape), dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return self._samples

    def batch(self, indices: Tensor) -> Batch:
        where = indices % self._pool_size
        return self._images.index_select(0, where), where % self.classes
