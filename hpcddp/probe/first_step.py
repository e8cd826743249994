"""What the first step of a loop shows of it: DDP around the model, and the precision in which it computes."""

from __future__ import annotations

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
