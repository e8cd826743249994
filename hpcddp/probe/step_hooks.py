"""What torch's own hooks show of a loop: the parts of each step, and in the first what it computes with and where a batch has its
samples, which the last one of an epoch, and ragged ones, have fewer of. Nothing of torch is patched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from hpcddp.probe.script_point import inside

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


class FirstStep:
    """Watches calls of all modules, by torch's hook for that, until `end`; of a compiled model its own, as another hook would
    compile it once more without."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._outer = set(_wrapped(model))
        """The model, and what is around its innermost."""
        self._device_type = next((parameter.device.type for parameter in model.parameters()), "cpu")
        self.ddp = find_ddp(model)
        """What exchanges the model's gradients; None where nothing of DDP was seen."""
        self.autocast: str | None = None
        """What forward ran in, by torch's name of the type; None outside autocast."""
        watch = model.register_forward_pre_hook if is_compiled(model) else register_module_forward_pre_hook
        self._handle: Any = watch(self._called)
        self._inside = False

    def _called(self, module: nn.Module, _: Any) -> None:
        if not torch.is_grad_enabled():
            return
        if self.ddp is None and isinstance(module, DistributedDataParallel) and self._model in _wrapped(module):
            self.ddp = module
        around = module in self._outer or isinstance(module, DistributedDataParallel)
        if self.autocast is None and not self._inside:
            self.autocast = autocast_name(self._device_type)
        self._inside |= not around  # frameworks begin it inside the model's own forward; deeper it may be a layer's alone

    def end(self) -> None:
        self._handle.remove()


def _wrapped(model: nn.Module) -> list[nn.Module]:
    """The model, and what DDP, torch.compile and their like have inside, outermost first."""
    inner = inside(model)
    return [model, *(_wrapped(inner) if inner else ())]


def find_ddp(model: nn.Module) -> DistributedDataParallel | None:
    """The model, or what of it DDP has."""
    return next((each for each in model.modules() if isinstance(each, DistributedDataParallel)), None)


def is_compiled(model: nn.Module) -> bool:
    """Whether any of it goes through torch.compile."""
    parts = model.modules()
    return any(hasattr(each, "_orig_mod") or getattr(each, "_compiled_call_impl", None) is not None for each in parts)


def autocast_name(device_type: str) -> str | None:
    """`float16` or `bfloat16`; None outside autocast. Before torch 2.4 there is an interface for each device."""
    try:
        return str(torch.get_autocast_dtype(device_type)).rpartition(".")[2] if torch.is_autocast_enabled(device_type) else None
    except (AttributeError, TypeError):
        on_cpu = device_type == "cpu"
        if not (torch.is_autocast_cpu_enabled() if on_cpu else torch.is_autocast_enabled()):
            return None
        return str(torch.get_autocast_cpu_dtype() if on_cpu else torch.get_autocast_gpu_dtype()).rpartition(".")[2]


Place = tuple[Hashable, ...]
"""In a batch: keys and numbers of its parts, then a dimension of a tensor, or LENGTH of a list."""

LENGTH = "length"

MOST_PARTS = 16
"""Of a batch, or of a part of it, that are looked at: a list may have a part for each sample."""


class BatchSize:
    """Reads the same place of every batch, by the first: what its loader says, the script says, or its tensors share."""

    def __init__(self, declared: int) -> None:
        """`declared`: of a batch, as the script says."""
        self._declared = declared
        self.samples_of: Callable[[Any], int] | None = None
        """The script's own function, which is asked instead."""
        self._place: Place | None = None
        self._is_chosen = False
        self.has_tensors = True
        """False: the loop fetches its data by itself."""

    def of(self, batch: Any, loader: Any) -> int | None:
        """None where the batch does not show it."""
        if self.samples_of:
            return int(self.samples_of(batch))
        found = _sizes(batch)
        if not self._is_chosen:
            self._place, self._is_chosen = self._choose(found, getattr(loader, "batch_size", None)), True
            self.has_tensors = bool(found)
        return found.get(self._place) if self._place is not None else None

    def _choose(self, found: Mapping[Place, int], of_loader: Any) -> Place | None:
        first = [place for place in found if place[-1] == 0]
        lists = [place for place in found if place[-1] == LENGTH]
        second = [place for place in found if place[-1] == 1]
        places = [*first, *lists, *second]
        for size in (of_loader, self._declared):
            if alike := [place for place in places if found[place] == size]:
                return alike[0]
        return first[0] if len({found[place] for place in first}) == 1 else None


def _sizes(batch: Any, place: Place = ()) -> dict[Place, int]:
    """Of its tensors and arrays the first two dimensions, of its lists the lengths."""
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        return {(*place, dimension): size for dimension, size in enumerate(shape[:2])}
    found: dict[Place, int] = {}
    if isinstance(batch, (list, tuple)):
        found[(*place, LENGTH)] = len(batch)
    parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch) if found else ()
    for key, part in islice(parts, MOST_PARTS):
        found |= _sizes(part, (*place, key))
    return found
