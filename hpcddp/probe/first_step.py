"""What the first step of a loop shows of it: DDP around the model, the precision in which it computes, and where a batch
shows its samples, which the last one of an epoch, and ragged ones, have fewer of.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from hpcddp.probe.script_point import inside


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
        """The step is over, or the measurement."""
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
