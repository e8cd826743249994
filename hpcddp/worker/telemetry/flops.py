"""The arithmetic of training on one sample, counted by torch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from hpcddp.core.point import Workload
from hpcddp.data import Source
from hpcddp.worker.training.models import build_model

SAMPLES = 2
"""BatchNorm takes no single sample while training."""


def flops_per_sample(module: nn.Module, shape: tuple[int, ...]) -> int | None:
    """Floating-point operations of forward and backward for a sample of `shape` (channels, height, width).

    A multiplication and an addition are two. Counted are products and convolutions, as in published figures for models, not
    what normalisation, activations and the optimizer do. On a copy without data, so that nothing is computed and no GPU is
    touched; None where that fails: a model that reads the values of its input, an operator that knows no shapes.
    """
    try:
        return _count(_without_data(module), shape)
    except Exception:  # the user's own code, and any operator of torch, may raise anything; the figure is not worth a run
        return None


def flops_of_sharded(workload: Workload, source: Source) -> int | None:
    """The same of a model whose parameters are sharded, which cannot be copied: of another one of its kind."""
    try:
        with torch.device("meta"):
            model = build_model(workload.model, classes=source.classes, height=source.shape[1], seed=workload.seed)
    except Exception:  # as above
        return None
    return flops_per_sample(model, source.shape)


def _count(model: nn.Module, shape: tuple[int, ...]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    images = torch.empty(SAMPLES, *shape, dtype=next(model.parameters()).dtype, device="meta")
    with FlopCounterMode(display=False) as counter, torch.enable_grad():
        model(images).sum().backward()
    return int(counter.get_total_flops()) // SAMPLES


def _without_data(module: nn.Module) -> nn.Module:
    """A copy on the meta device; parameters and buffers are not copied on the way, as a full GPU would not hold them twice."""
    memo: dict[int, Any] = {
        id(value): nn.Parameter(torch.empty_like(value, device="meta"), requires_grad=value.requires_grad)
        for value in module.parameters()
    }
    memo |= {id(value): torch.empty_like(value, device="meta") for value in module.buffers()}
    model = copy.deepcopy(module, memo).train()
    for part in model.modules():
        if isinstance(part, nn.SyncBatchNorm):
            part.eval()  # while training it talks to the other ranks
    return model
