"""A stand-in for CUDA, so that a GPU test with a mistake in it fails where there is no GPU.

In the process that installs it, torch says that it has GPUs; what is put there lies in the host's memory, NCCL is gloo, and
events are the host's clock. Every call of CUDA that hpcddp makes is answered, if it has the arguments that CUDA asks for. Times,
overlap and arithmetic are not a GPU's: bounds on those hold on a GPU only. Nothing is undone: it lasts as long as the process.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

MEMORY_BYTES = 64 * 2**20
"""Of a GPU. Images of more than COPY_BYTES find it full."""

COPY_BYTES = 2**20

FULL = (
    "CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which 32.00 MiB is free. "
    "Including non-PyTorch memory, this process has 32.00 MiB memory in use."
)
"""CUDACachingAllocator's words, of torch 2.11."""

LOG = """\
node0:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9
node0:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
node0:1:1 [0] NCCL INFO Using network Socket
node0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
"""As NCCL logs its start in a node."""

NVML_FOLDER = Path(__file__).parent / "standin_nvml"
"""Has a pynvml and an nvidia-smi that agree with each other."""

AMD_SMI_FOLDER = Path(__file__).parent / "standin_amdsmi"
"""Has an amdsmi."""


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self._timed = enable_timing
        self._at_ns: int | None = None

    def record(self, stream: Any = None) -> None:
        self._at_ns = time.perf_counter_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def elapsed_time(self, later: Event) -> float:
        if not (self._timed and later._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_ns is None or later._at_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (later._at_ns - self._at_ns) / 1e6


class Stream:
    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device, self.priority = device, priority

    def wait_event(self, event: Event) -> None:
        if not isinstance(event, Event):
            raise TypeError(f"an event is waited for, not {event!r}")


class OnHost(TorchFunctionMode):
    """Tensors that are to lie on `cuda` lie in the host's memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = {name: _host(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if func is torch.Tensor.to and any(map(_is_cuda, args[1:])):
            _check_room(args[0])
        return func(*map(_host, args), **kwargs)


def install(gpus: int) -> None:
    """This process has so many GPUs from here on. Its telemetry finds a stand-in for NVML."""
    for where, names in _answers(gpus):
        for name, value in names.items():
            _replace(where, name, value)
    sys.path.insert(0, str(NVML_FOLDER))
    OnHost().__enter__()  # type: ignore[no-untyped-call]


def install_rocm(gpus: int) -> None:
    """Over the stand-in for CUDA: torch says that it is built for ROCm, and its GPUs are those of the stand-in for AMD SMI."""
    properties = {"name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+:xnack-", "total_memory": MEMORY_BYTES}
    found = [SimpleNamespace(**properties, pci_domain_id=0, pci_bus_id=index, pci_device_id=0) for index in range(gpus)]
    answers = {
        "get_arch_list": lambda: ["gfx90a", "gfx942"],
        "get_device_properties": lambda device: found[device if isinstance(device, int) else device.index],
        "get_device_name": lambda device: properties["name"],
    }
    for name, answer in answers.items():
        _replace(torch.cuda, name, answer)
    _replace(torch.cuda.nccl, "version", lambda: (2, 22, 3))
    _replace(torch.backends.cudnn, "version", lambda: 3_004_000)
    torch.version.cuda, torch.version.hip = None, "6.4.43482"
    sys.path.insert(0, str(AMD_SMI_FOLDER))


def _replace(where: Any, name: str, value: Any) -> None:
    """There, and in modules of hpcddp that have imported it already."""
    real = getattr(where, name)
    setattr(where, name, value)
    for module in [module for own, module in sys.modules.items() if own.startswith("hpcddp.")]:
        for own in [own for own, found in vars(module).items() if found is real]:
            setattr(module, own, value)


def _answers(gpus: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    known = {"name": "stand-in", "major": 9, "minor": 0, "total_memory": MEMORY_BYTES}
    found = [SimpleNamespace(**known, pci_domain_id=0, pci_bus_id=index, pci_device_id=0) for index in range(gpus)]
    yield (
        torch.cuda,
        {
            "Event": Event,
            "Stream": Stream,
            "stream": contextlib.nullcontext,
            "current_stream": Stream,
            "is_available": lambda: gpus > 0,
            "is_initialized": lambda: True,
            "device_count": lambda: gpus,
            "set_device": _check_device(gpus),
            "synchronize": _check_device(gpus),
            "set_sync_debug_mode": lambda mode: None,
            "get_arch_list": lambda: ["sm_90"],
            "get_device_properties": lambda device: found[device if isinstance(device, int) else device.index],
            "get_device_name": lambda device: known["name"],
            "mem_get_info": lambda device: (MEMORY_BYTES // 2, MEMORY_BYTES),
            "memory_reserved": lambda device: MEMORY_BYTES // 2,
            "max_memory_allocated": lambda device: MEMORY_BYTES // 2,
            "max_memory_reserved": lambda device: MEMORY_BYTES // 2,
            "get_rng_state": lambda device=None: torch.arange(16, dtype=torch.uint8),
            "set_rng_state": lambda state, device=None: None,
        },
    )
    yield torch.cuda.nccl, {"version": lambda: (2, 27, 5)}
    yield torch.backends.cudnn, {"version": lambda: 91002}
    yield torch.nn.SyncBatchNorm, {"forward": _synced_forward}
    yield torch, {"autocast": _autocast(torch.autocast), "compile": _Uncompiled}
    yield torch.amp, {"GradScaler": _grad_scaler(torch.amp.GradScaler)}
    yield torch.Tensor, {"record_stream": lambda tensor, stream: None, "pin_memory": lambda tensor: tensor}
    yield from _distributed()
    yield from _loaders_and_profilers()


def _distributed() -> Iterator[tuple[Any, dict[str, Any]]]:
    from torch.nn import parallel

    join, barrier = dist.init_process_group, dist.barrier

    def joined(backend: str, **options: Any) -> None:
        join({"nccl": "gloo"}[backend], **options)

    def met(device_ids: list[int] | None) -> None:
        if not device_ids:
            raise ValueError("NCCL's barrier guesses a GPU where it is given none")
        barrier()

    class Ddp(parallel.DistributedDataParallel):
        def __init__(self, module: Any, device_ids: list[int], **options: Any) -> None:
            if len(device_ids) != 1:
                raise ValueError(f"one GPU a rank, not {device_ids}")
            super().__init__(module, **options)

        def _passing_sync_batchnorm_handle(self, module: Any) -> None:
            """Torch's refuses SyncBatchNorm in a model that lies in the host's memory."""

    class Dp(parallel.DataParallel[Any]):
        def __init__(self, module: Any, device_ids: list[int]) -> None:
            for index in device_ids:
                torch.cuda.set_device(index)
            torch.nn.Module.__init__(self)
            self.module, self.device_ids = module, []  # without any it calls the module itself

    from torch.distributed import device_mesh

    all_reduce, mesh = dist.all_reduce, device_mesh.init_device_mesh

    def reduced(*arguments: Any, **options: Any) -> Any:
        if os.environ.get("NCCL_DEBUG") == "INFO":
            Path(os.environ["NCCL_DEBUG_FILE"]).write_text(LOG)
        return all_reduce(*arguments, **options)

    yield dist, {"init_process_group": joined, "barrier": met, "get_backend": lambda: "nccl", "all_reduce": reduced}
    yield device_mesh, {"init_device_mesh": lambda kind, *shape, **names: mesh({"cuda": "cpu"}[kind], *shape, **names)}
    yield parallel, {"DistributedDataParallel": Ddp, "DataParallel": Dp}


def _loaders_and_profilers() -> Iterator[tuple[Any, dict[str, Any]]]:
    import torch.profiler
    import torch.utils.data

    loader, profile = torch.utils.data.DataLoader, torch.profiler.profile
    on_host = [torch.profiler.ProfilerActivity.CPU]

    def load(*arguments: Any, pin_memory: bool, **options: Any) -> Any:
        return loader(*arguments, **options)

    def profiled(*, activities: list[Any], **options: Any) -> Any:
        return profile(activities=on_host, **options)

    yield torch.utils.data, {"DataLoader": load}
    yield torch.profiler, {"profile": profiled}


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return _SumOverRanks.backward(ctx, values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def _synced_forward(norm: Any, values: torch.Tensor) -> torch.Tensor:
    """As torch.nn.SyncBatchNorm's, whose kernels are CUDA's: by sums over all ranks' values, which gradients go through."""
    if not norm.training:
        return torch.nn.functional.batch_norm(values, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    dims = [dim for dim in range(values.dim()) if dim != 1]
    count = torch.full((1,), values.numel() / values.shape[1])
    own = torch.cat([values.sum(dims), values.square().sum(dims), count])
    sums: torch.Tensor = _SumOverRanks.apply(own)
    of_all = sums[-1].detach()
    mean, square = (sums[:-1] / of_all).chunk(2)
    variance = square - mean.square()
    for name, now in (("running_mean", mean), ("running_var", variance * of_all / (of_all - 1))):
        getattr(norm, name).lerp_(now.detach(), norm.momentum)
    norm.num_batches_tracked.add_(1)
    scale, shape = norm.weight * torch.rsqrt(variance + norm.eps), [1, -1, *[1] * (values.dim() - 2)]
    normalised: torch.Tensor = values * scale.view(shape) + (norm.bias - mean * scale).view(shape)
    return normalised


def _check_device(gpus: int) -> Callable[[Any], None]:
    def check(device: Any) -> None:
        index = device.index if isinstance(device, torch.device) else device
        if not 0 <= index < gpus:
            raise RuntimeError("CUDA error: invalid device ordinal")

    return check


def _autocast(real: Any) -> Callable[..., Any]:
    def on_host(device_type: str, **options: Any) -> Any:
        return real({"cuda": "cpu"}[device_type], **options)

    return on_host


class _Uncompiled(torch.nn.Module):
    """What torch.compile gives: another module, with the first one's parameters. torch's compiler cannot be misled about CUDA."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, images: torch.Tensor) -> Any:
        return self._orig_mod(images)


def _grad_scaler(real: Any) -> Callable[[str], Any]:
    return lambda device_type: real({"cuda": "cpu"}[device_type])


def _check_room(tensor: torch.Tensor) -> None:
    if tensor.dtype == torch.uint8 and tensor.dim() == 4 and tensor.nbytes > COPY_BYTES:
        raise torch.OutOfMemoryError(FULL)


def _host(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if _is_cuda(value) else value


def _is_cuda(value: Any) -> bool:
    return (isinstance(value, torch.device) and value.type == "cuda") or (
        isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) is not None
    )
