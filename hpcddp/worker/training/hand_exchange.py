"""Gradients that ranks exchange by hand once backward is over, parameter by parameter: what DDP does better, to compare with."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.point import ByHand

BROADCAST_BYTES = 250 * 2**20
"""Of buffers in one message, at most: DDP's own."""


class HandExchange(nn.Module):
    """Calls the model after a broadcast of rank 0's buffers, as DDP does, and exchanges gradients when `exchange` is called.

    Parameters are not broadcast: all ranks build them from the same seed, which the gate `parameters agree` checks.
    """

    def __init__(self, module: nn.Module, kind: ByHand) -> None:
        super().__init__()
        self.module = module
        self._average = all_reduce if kind == "all_reduce" else gather_scatter
        self._exchanged = True

    def forward(self, images: torch.Tensor) -> Any:
        """Buffers travel with the first forward after an exchange only: once a step, with micro-batches too."""
        buffers = list(self.module.buffers()) if self._exchanged and dist.get_world_size() > 1 else []
        if buffers:
            with torch.no_grad():
                dist._broadcast_coalesced(dist.group.WORLD, buffers, BROADCAST_BYTES, 0)  # type: ignore[attr-defined, arg-type]
        scores = self.module(images)
        self._exchanged = False
        return scores

    def exchange(self) -> None:
        """Replaces each gradient by its mean over all ranks, one after the other; one rank has nobody to exchange with."""
        self._exchanged = True
        ranks = dist.get_world_size()
        if ranks == 1:
            return
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                contiguous = parameter.grad.contiguous()  # what gathers and scatters; itself, but with channels_last
                self._average(contiguous, ranks)
                if contiguous is not parameter.grad:
                    parameter.grad.copy_(contiguous)


def all_reduce(gradient: torch.Tensor, ranks: int) -> None:
    """One all-reduce, in place."""
    dist.all_reduce(gradient)
    gradient.div_(ranks)


def gather_scatter(gradient: torch.Tensor, ranks: int) -> None:
    """Rank 0 gathers everybody's gradient, averages, and scatters the mean, in place."""
    if dist.get_rank() != 0:
        dist.gather(gradient, None, 0)
        dist.scatter(gradient, None, 0)
        return
    gathered = [torch.empty_like(gradient) for _ in range(ranks)]
    dist.gather(gradient, gathered, 0)
    mean = torch.stack(gathered).sum(0).div_(ranks)
    dist.scatter(gradient, [mean] * ranks, 0)
