"""An exponential moving average of the parameters, which is evaluated in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class WeightAverage:
    """All ranks have the same one, as they have the same parameters. Buffers, as BatchNorm's statistics, are not averaged.

    Why not torch.optim.swa_utils.AveragedModel: it is a second model, which copies all buffers in every step, begins as the
    parameters are after the first step, and would be evaluated uncompiled beside the one that trains.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._parameters: list[torch.Tensor] = list(module.parameters())
        self._decay = decay
        self._average = [parameter.detach().clone() for parameter in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """After a step. At first the average moves faster: the parameters that it began with were drawn at random."""
        keep = min(self._decay, (1 + self._steps) / (10 + self._steps))
        torch._foreach_lerp_(self._average, self._parameters, 1 - keep)
        self._steps += 1

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the average's values; afterwards its own again, bit for bit."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._average)
        try:
            yield
        finally:
            self._put(own)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"average": self._average, "steps": self._steps}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Makes it what it was at a checkpoint."""
        self._steps = state["steps"]
        for own, value in zip(self._average, state["average"], strict=True):
            own.copy_(value)

    @torch.no_grad()
    def _put(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)
