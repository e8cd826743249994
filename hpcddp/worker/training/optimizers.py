"""The optimizer that a workload names, its groups of parameters, and the learning rate of each step."""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from torch import nn

from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import LIBRARY, LIBRARY_MODULE, Optimizer, Point


def scaled_rate(chosen: Optimizer, global_batch: int) -> float:
    """`lr` for a global batch of that size: linear by Goyal et al. (arXiv 1706.02677), sqrt by Krizhevsky (arXiv 1404.5997)."""
    times = 1.0 if chosen.base_batch is None else global_batch / chosen.base_batch
    if chosen.scaling == "linear":
        return chosen.lr * times
    return chosen.lr * math.sqrt(times) if chosen.scaling == "sqrt" else chosen.lr


class RateSchedule:
    """The rates of a point's steps. Each is a function of the step alone, so that a run that goes on needs no state of it.

    Why not torch's schedulers, which give the same (tests/worker/test_optimizers.py): each makes a rate from the one before it,
    so that a checkpoint would have to hold them, and a warm-up takes a second one, and a third around both.
    """

    def __init__(self, point: Point, plan: EpochPlan) -> None:
        self._chosen = point.workload.optimizer
        self._plan = plan
        self._warmup = round(self._chosen.warmup_epochs * plan.steps_of(0))
        self._steps = plan.first_step(point.measure.epochs or 1)
        grows = bool(plan.grows_at) and self._chosen.scaling != "none"
        self.varies = self._warmup > 0 or self._chosen.schedule != "constant" or grows

    def rate(self, step: int) -> float:
        """Of that step of the run, the first being 0."""
        peak = scaled_rate(self._chosen, self._plan.batch_at(step))
        if step < self._warmup:
            return peak * (step + 1) / self._warmup
        return peak * self._share(step)

    def _share(self, step: int) -> float:
        chosen = self._chosen
        if chosen.schedule == "step":
            epochs, _ = self._plan.epoch_at(step)
            return chosen.decay_factor ** sum(1 for epoch in chosen.decay_at_epochs if epoch <= epochs)
        past = (step - self._warmup) / (self._steps - self._warmup)
        if chosen.schedule == "cosine":
            return (1 + math.cos(math.pi * past)) / 2
        return (1 - past) ** chosen.power if chosen.schedule == "polynomial" else 1.0


LAMB_EPS = 1e-6
"""As You et al. (2019, arXiv 1904.00962) have it, and the library."""

AS_PUBLISHED = {"weight_decouple": False, "adam_debias": True}
"""Of LAMB: the trust ratio scales the decay too (algorithm 2), and steps are not corrected for the moments' bias. Left to itself
the library (4.1) divides by that bias behind the trust ratio, so that its first step is ten times as long."""

ADAMW_EPS = 1e-8
"""torch's default."""


def make_optimizer(chosen: Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    """With the rate as given; HpcddpError where a library that it comes from is missing."""
    parameters: Any = _groups(chosen, module)
    common: dict[str, Any] = {"lr": chosen.lr, "weight_decay": chosen.weight_decay}
    with_momentum = {**common, "momentum": chosen.momentum, "nesterov": chosen.nesterov}
    if chosen.name == "sgd":
        return torch.optim.SGD(parameters, **with_momentum)
    if chosen.name == "lars":
        return _from_library("LARS", parameters, with_momentum)
    eps = ADAMW_EPS if chosen.name == "adamw" else LAMB_EPS
    with_moments = {**common, "betas": chosen.betas, "eps": eps if chosen.eps is None else chosen.eps}
    if chosen.name == "adamw":
        return torch.optim.AdamW(parameters, **with_moments)
    return _from_library("Lamb", parameters, {**with_moments, **AS_PUBLISHED})


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Of all groups of parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _groups(chosen: Optimizer, module: nn.Module) -> Any:
    if chosen.weight_decay_on == "all":
        return module.parameters()
    by_decay: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in module.parameters():
        by_decay[parameter.ndim > 1].append(parameter)
    without = [{"params": by_decay[False], "weight_decay": 0.0}] if by_decay[False] else []
    return [{"params": by_decay[True]}, *without]


def _from_library(name: str, parameters: Any, options: dict[str, Any]) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = getattr(_library(name.lower()), name)(parameters, **options)
    return made


def _library(name: str) -> Any:
    try:
        return importlib.import_module(LIBRARY_MODULE)
    except ImportError as error:
        raise HpcddpError(
            f"workload.optimizer.name is {name}, but its library {LIBRARY} does not load ({error}). "
            f"Install it in the compute environment (pip install {LIBRARY}), or use sgd or adamw."
        ) from error
