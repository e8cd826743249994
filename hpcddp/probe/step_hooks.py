"""Marks the parts of a step by torch's own hooks: of module, parameters and optimizer. Nothing of torch is patched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

Mark = Callable[[str], None]


class StepHooks:
    """Of one model and its optimizers. Between two marks on one timeline:

    from the batch to the model's call `h2d_exposed`, the call `forward`, from there to the last gradient `backward` (the loss
    with it, unless it is marked by hand), what DDP then still exchanges `comm_exposed`, and from there to the end of an
    optimizer's step `optimizer`.
    """

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], mark: Mark, *, watches_calls: bool = True
    ) -> None:
        """`watches_calls`: the loop calls the model; else whoever makes these hooks calls `computed` where forward ends."""
        self._mark = mark
        self._model = model
        self.exchanges = False
        """DDP does something when all gradients are there."""
        self.optimizer_steps = self.backwards = 0
        self.backward_is_due = False
        """A forward has ended whose backward has not: what passes belongs to it."""
        self._gradients_are_new = False
        """A backward has ended, and neither a forward nor an optimizer's step has come since."""
        self._hooks_outputs = True
        """A backward is noticed by the model's output, another one every time; later by a parameter, where one serves."""
        self._parameter_hook: Any = None
        self._handles: list[Any] = [each.register_step_pre_hook(self._steps) for each in optimizers]
        self._handles += [each.register_step_post_hook(self._stepped) for each in optimizers]
        if watches_calls:
            self._handles += [model.register_forward_pre_hook(self._called), model.register_forward_hook(self._answered)]

    def __reduce__(self) -> Any:
        """A copy of the model, as for a moving average, is not the one that is measured: its hooks do nothing."""
        return StepHooks, (nn.Identity(), (), _no_mark)

    def remove(self) -> None:
        """The script goes on without them."""
        for handle in (*self._handles, self._parameter_hook):
            if handle:
                handle.remove()

    def _called(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self._mark("other" if self.backward_is_due else "h2d_exposed")

    def _answered(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Evaluation is no part of a step, and has no gradients."""
        if torch.is_grad_enabled():
            self.computed(output)

    def computed(self, output: Any) -> None:
        """Forward has ended, with this: a tensor, or tensors in whatever holds them."""
        self._mark("forward")
        self.backward_is_due, self._gradients_are_new = True, False
        if self._hooks_outputs:
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
        self.noticed_backward()
        self._mark("backward")
        if self.exchanges:
            torch.autograd.Variable._execution_engine.queue_callback(self._exchanged)
        if self.backwards == 1:
            self._hook_a_parameter()

    def noticed_backward(self) -> None:
        """All gradients are there, by the hooks or as the script says."""
        self.backwards += 1
        self.backward_is_due, self._gradients_are_new = False, True

    def _exchanged(self) -> None:
        self._mark("comm_exposed")

    def _hook_a_parameter(self) -> None:
        """The last one that has got a gradient, for good; not a shard, which autograd never reaches."""
        reached = [parameter for parameter in self._model.parameters() if parameter.grad is not None]
        for parameter in reached[-1:]:
            if type(parameter.data) is torch.Tensor:
                self._parameter_hook = parameter.register_hook(self._backward_begins)  # type: ignore[no-untyped-call]
                self._hooks_outputs = False

    def _steps(self, _: Any, arguments: Any, keywords: Any) -> None:
        """What came before is of the optimizer, as clipping is, where it follows a backward that was noticed; else `other`."""
        if self._gradients_are_new or len(arguments) > 1 or keywords.get("closure"):  # which has forward and backward in it
            return
        self._mark("other")
        if self.backward_is_due:
            self._hook_otherwise()

    def _hook_otherwise(self) -> None:
        """A backward was not noticed: no tensor was found in the output, or the parameter was not in use."""
        if self._parameter_hook:
            self._parameter_hook.remove()
            self._parameter_hook, self._hooks_outputs = None, True
        elif not self.backwards:
            self._hook_a_parameter()

    def _stepped(self, *_: Any) -> None:
        self.optimizer_steps += 1
        self._gradients_are_new = False
        self._mark("optimizer")


def _no_mark(part: str) -> None:
    """Of a copy."""


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
