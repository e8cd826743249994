"""Reads a step's loss without waiting for the device: when the row of the step is written."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class LossReader(Protocol):
    """`hold` when the step has computed its loss, `value` once the step's last mark has passed."""

    def hold(self, loss: torch.Tensor) -> Any: ...

    def value(self, held: Any) -> float: ...


class HostLosses:
    """On a CPU, where the loss is known at once."""

    def hold(self, loss: torch.Tensor) -> float:
        return loss.item()

    def value(self, held: float) -> float:
        return held


class DeviceLosses:
    """On CUDA it is copied into pinned memory, in the compute stream: the mark that closes the step comes behind the copy."""

    POOL_SIZE = 512
    """Places allocated at once: pinning takes a millisecond, and a device is rarely so many steps behind."""

    def __init__(self, *, pinned: bool = True) -> None:
        self._pinned = pinned
        self._free: list[torch.Tensor] = []

    def hold(self, loss: torch.Tensor) -> torch.Tensor:
        if not self._free:
            self._free += torch.empty(self.POOL_SIZE, dtype=loss.dtype, pin_memory=self._pinned).unbind()
        place = self._free.pop()
        place.copy_(loss, non_blocking=True)
        return place

    def value(self, held: torch.Tensor) -> float:
        self._free.append(held)
        return held.item()


def loss_reader_for(device_type: str) -> LossReader:
    """Of the device that trains."""
    return DeviceLosses() if device_type == "cuda" else HostLosses()
