"""Marks of what ranks wait for where parameters are sharded: gathered before forward and backward, gradients scattered after it.

By torch's own hooks of modules and tensors, around those of fully_shard, in the stream that computes. On CUDA a part is therefore
what the computation waits for, and the copies of what came; what travels behind the computation is in no part. gloo's collectives
on a CPU return when they are done, so that all of their time is exposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hpcddp.worker.training.backward import Mark
from hpcddp.worker.training.sharding import Sharding

METHOD = "hooks of sharded modules: what the computation waits for parameters and gradients, with the copies of what came"
"""As end.json names it."""


def mark_exchanges(sharding: Sharding, mark: Mark) -> None:
    """From now on each forward and backward of a step is marked; forwards without gradients, as in evaluation, are not."""
    sharding.backward.marks_exchange = True
    for part in sharding.parts:
        _Marks(mark).around(part)


class _Marks:
    """Around one module, before and behind the hooks of fully_shard, which are there already.

    Hooks of a tensor run in the order in which they were registered. A module's inputs pass through a function of fully_shard's,
    in whose backward gradients are scattered: the tensors that the module gets come before it in backward, those it was called
    with behind it. Where no input has a gradient, as of the first block, that happens when backward is over.
    """

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def around(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self._before_gathering, prepend=True)
        module.register_forward_pre_hook(self._gathered)
        module.register_forward_hook(self._before_output, prepend=True)
        module.register_forward_hook(self._output)

    def _before_gathering(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            self._mark("forward")
            self._hook(inputs, "reduce_scatter")

    def _gathered(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            self._mark("all_gather_forward")
            self._hook(inputs, "backward")

    def _before_output(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self._hook((output,), "backward")

    def _output(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self._hook((output,), "all_gather_backward")

    def _hook(self, values: tuple[Any, ...], part: str) -> None:
        """The first tensor with a gradient stands for all: what comes of a module is computed at one time."""
        for tensor in _with_gradient(values):
            tensor.register_hook(lambda _: self._mark(part))  # type: ignore[no-untyped-call]
            return


def _with_gradient(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _with_gradient(tuple(value))
        elif isinstance(value, torch.Tensor) and value.requires_grad:
            yield value
