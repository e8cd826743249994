"""Marks the parts of a step by torch's own hooks: of module, parameters and optimizer. Nothing of torch is patched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Mark = Callable[[str], None]


class StepHooks:
    """Of one model and its optimizers. Between two marks on one timeline:

    from the batch to the model's call `h2d_exposed`, the call `forward`, from there to the last gradient `backward` (the loss
    with it, unless it is marked by hand), what DDP then still exchanges `comm_exposed`, and from there to the end of an
    optimizer's step `optimizer`.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], mark: Mark) -> None:
        self._mark = mark
        self._model = model
        self.exchanges = find_ddp(model) is not None
        self.optimizer_steps = 0
        self.autocast: str | None = None
        """What forward ran in, by torch's name of the type; None outside autocast."""
        self.backward_is_due = False
        """A forward has ended whose backward has not: what passes belongs to it."""
        self._parameter: Any = None
        self._handles: list[Any] = [
            model.register_forward_pre_hook(self._called),
            model.register_forward_hook(self._computed),
            *(each.register_step_post_hook(self._stepped) for each in optimizers),
        ]

    def remove(self) -> None:
        """The script goes on without them."""
        for handle in self._handles:
            handle.remove()

    def _called(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self.autocast = autocast_name(next(self._model.parameters()).device.type)
            self._mark("other" if self.backward_is_due else "h2d_exposed")

    def _computed(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Evaluation is no part of a step, and has no gradients."""
        if not torch.is_grad_enabled():
            return
        self._mark("forward")
        self.backward_is_due = True
        if self._parameter is None:
            for tensor in tensors_with_gradient(output):
                tensor.register_hook(self._backward_begins)  # type: ignore[no-untyped-call]
                return

    def _backward_begins(self, _: torch.Tensor) -> None:
        """Autograd runs queued callbacks in order when all gradients are there, and those that a callback queues at the end: ours
        comes before DDP's, which waits for the exchange, and the one that it queues comes behind."""
        torch.autograd.Variable._execution_engine.queue_callback(self._gradients_are_there)

    def _gradients_are_there(self) -> None:
        if not self.backward_is_due:
            return
        self.backward_is_due = False
        self._mark("backward")
        if self.exchanges:
            torch.autograd.Variable._execution_engine.queue_callback(self._exchanged)
        if self._parameter is None:
            self._hook_a_parameter()

    def _exchanged(self) -> None:
        self._mark("comm_exposed")

    def _hook_a_parameter(self) -> None:
        """The last one that has got a gradient, for good: an output is another one every time."""
        reached = [parameter for parameter in self._model.parameters() if parameter.grad is not None]
        for parameter in reached[-1:]:
            self._parameter = parameter
            self._handles.append(parameter.register_hook(self._backward_begins))  # type: ignore[no-untyped-call]

    def _stepped(self, *_: Any) -> None:
        self.optimizer_steps += 1
        self._mark("optimizer")


def find_ddp(model: nn.Module) -> DistributedDataParallel | None:
    """The model, or what of it DDP has."""
    return next((each for each in model.modules() if isinstance(each, DistributedDataParallel)), None)


def tensors_with_gradient(output: Any) -> Iterator[torch.Tensor]:
    """In whatever the model gives: a tensor, or tensors in tuples, lists, mappings and dataclasses."""
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
        return
    if isinstance(output, Mapping):
        output = list(output.values())
    elif hasattr(output, "__dataclass_fields__"):
        output = [getattr(output, name) for name in output.__dataclass_fields__]
    if isinstance(output, (list, tuple)):
        for each in output:
            yield from tensors_with_gradient(each)


def autocast_name(device_type: str) -> str | None:
    """`float16` or `bfloat16`; None outside autocast. Before torch 2.4 there is an interface for each device."""
    try:
        return str(torch.get_autocast_dtype(device_type)).rpartition(".")[2] if torch.is_autocast_enabled(device_type) else None
    except (AttributeError, TypeError):
        on_cpu = device_type == "cpu"
        if not (torch.is_autocast_cpu_enabled() if on_cpu else torch.is_autocast_enabled()):
            return None
        return str(torch.get_autocast_cpu_dtype() if on_cpu else torch.get_autocast_gpu_dtype()).rpartition(".")[2]
