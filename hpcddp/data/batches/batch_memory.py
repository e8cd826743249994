"""Memory for batches, used again when nothing refers to the batch in it any more."""

from __future__ import annotations

import math
import sys

import torch

from hpcddp.data.source import Batch

MOST_BUFFERS = 64
"""A reader that goes on holding its batches gets memory of its own for each one beyond."""

LABEL_BYTES = 8


class BatchMemory:
    """Buffers of one size. A tensor made of one refers to it, and so does whatever shares the tensor's memory."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self._shape = shape
        self._size_bytes = 0
        self._buffers: list[bytearray] = []

    def room(self, samples: int) -> Batch:
        """Images and labels, with whatever lies there."""
        pixels = math.prod(self._shape)
        buffer = self._buffer(samples * (pixels + LABEL_BYTES))
        labels = torch.frombuffer(buffer, dtype=torch.int64, count=samples)
        images = torch.frombuffer(buffer, dtype=torch.uint8, offset=samples * LABEL_BYTES)
        return images.view(samples, *self._shape), labels

    def _buffer(self, size_bytes: int) -> bytearray:
        if size_bytes != self._size_bytes:
            self._size_bytes, self._buffers = size_bytes, []
        for number in range(len(self._buffers)):
            if _references(self._buffers, number) == _UNUSED:
                return self._buffers[number]
        buffer = bytearray(size_bytes)
        if len(self._buffers) < MOST_BUFFERS:
            self._buffers.append(buffer)
        return buffer


def _references(buffers: list[bytearray], number: int) -> int:
    return sys.getrefcount(buffers[number])


_UNUSED = _references([bytearray(1)], 0)
"""Of a buffer that only the list refers to; versions of Python count differently."""
