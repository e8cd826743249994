"""Random numbers by counting: each is a hash of a seed, a sample and a number, whatever else is drawn in the same call."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
"""SplitMix64's constants (Steele, Lea, Flood 2014), as int64 has them: products and sums wrap around."""


class CounterDraws:
    """Uniform numbers of samples: equal `seed` and index give equal numbers, call after call the next ones."""

    def __init__(self, seed: str, indices: Tensor) -> None:
        digest = hashlib.sha256(seed.encode()).digest()
        self._states = _mixed(_mixed(indices + 1) ^ int.from_bytes(digest[:8], "little", signed=True))
        self._drawn = 0

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        """In 0..1, multiples of 2^-24; the first size is the number of samples."""
        count = math.prod(shape[1:])
        counters = torch.arange(self._drawn + 1, self._drawn + count + 1) * _STEP
        self._drawn += count
        return ((_mixed(self._states[:, None] + counters) >> 40) & 0xFFFFFF).float().div_(1 << 24).view(shape)


def _mixed(numbers: Tensor) -> Tensor:
    """SplitMix64's output function."""
    for bits, factor in zip((30, 27), _FACTORS, strict=True):
        numbers = (numbers ^ _shifted(numbers, bits)) * factor
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """To the right, zeros from the left."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
