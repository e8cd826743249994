"""How a model is spread over devices: DDP, by hand once backward is over, one process with several GPUs, or not at all."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DataParallel, DistributedDataParallel

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import ByHand, Ddp, Workload
from hpcddp.worker.gpus import visible_devices

BROADCAST_BYTES = 250 * 2**20
"""Of buffers in one message, at most: DDP's own."""


class HandExchange(nn.Module):
    """Calls the model after a broadcast of rank 0's buffers, as DDP does, and exchanges gradients when `exchange` is called.
    Parameters are not broadcast: all ranks build them from the same seed, which the gate `parameters agree` checks."""

    def __init__(self, module: nn.Module, kind: ByHand) -> None:
        super().__init__()
        self.module = module
        self._average = average_by_all_reduce if kind == "all_reduce" else average_by_gather_scatter
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


def average_by_all_reduce(gradient: torch.Tensor, ranks: int) -> None:
    """One all-reduce, in place."""
    dist.all_reduce(gradient)
    gradient.div_(ranks)


def average_by_gather_scatter(gradient: torch.Tensor, ranks: int) -> None:
    """Rank 0 gathers everybody's gradient, averages, and scatters the mean, in place."""
    if dist.get_rank() != 0:
        dist.gather(gradient, None, 0)
        dist.scatter(gradient, None, 0)
        return
    gathered = [torch.empty_like(gradient) for _ in range(ranks)]
    dist.gather(gradient, gathered, 0)
    mean = torch.stack(gathered).sum(0).div_(ranks)
    dist.scatter(gradient, [mean] * ranks, 0)


AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}

NOTHING = contextlib.nullcontext()
"""One for all: a step enters it twice."""


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """The mixed precision of that name; nothing for fp32 and fp64."""
    dtype = AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype=dtype) if dtype else NOTHING


def over_devices(module: nn.Module, workload: Workload, device: torch.device, gpus: int) -> nn.Module:
    """What a step calls instead of `module`, whose parameters it trains; `gpus`: devices of this process.

    Compiled first and wrapped afterwards, as torch's documentation has it: within DDP's forward, torch.compile splits the graph
    at the buckets so that gradients still travel during backward. torch.compile of the wrapped model compiled nothing in 2.15.
    """
    called: Any = torch.compile(module) if workload.compile else module
    if workload.parallel == "ddp":
        return _ddp(called, workload.ddp, device)
    if workload.parallel == "data_parallel":
        return _data_parallel(called, workload, device, gpus)
    if workload.parallel in {"gather_scatter", "all_reduce"}:
        return HandExchange(called, workload.parallel)
    bare: nn.Module = called
    return bare


def _ddp(module: nn.Module, chosen: Ddp, device: torch.device) -> DistributedDataParallel:
    # A size that is not given is not passed on: only then is the first bucket 1 MiB, so that the exchange begins early.
    size: dict[str, Any] = {} if chosen.bucket_cap_mb is None else {"bucket_cap_mb": chosen.bucket_cap_mb}
    ddp = DistributedDataParallel(
        module,
        device_ids=[device.index] if device.type == "cuda" else None,
        static_graph=chosen.static_graph,
        gradient_as_bucket_view=chosen.gradient_as_bucket_view,
        **size,
    )
    _compress(ddp, chosen)
    return ddp


def _compress(ddp: DistributedDataParallel, chosen: Ddp) -> None:
    """Registers torch's hook of that name. PowerSGD begins as early as torch allows, with the third step: its default of 1,000
    would leave whole runs uncompressed."""
    if chosen.compression in AUTOCAST:
        ddp.register_comm_hook(None, getattr(default_hooks, f"{chosen.compression}_compress_hook"))
    elif chosen.compression == "powersgd":
        try:
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=chosen.powersgd_rank, start_powerSGD_iter=2)
        except ImportError as error:
            raise HpcddpError(f"ddp.compression powersgd needs NumPy in the compute environment ({error})") from error
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _data_parallel(module: nn.Module, workload: Workload, device: torch.device, gpus: int) -> nn.Module:
    """On a CPU, DataParallel calls the module as it is."""
    if device.type == "cuda" and torch.cuda.device_count() < gpus:
        raise HpcddpError(
            f"parallel: data_parallel needs {gpus} GPUs in one process, which sees {torch.cuda.device_count()}. "
            f"Check the job's GPU request and variables that hide GPUs ({visible_devices()})."
        )
    return DataParallel(_InAutocast(module, device, workload.precision), device_ids=list(range(gpus)))


class _InAutocast(nn.Module):
    """DataParallel runs each replica in a thread, where autocast is on but has lost its type: bf16 would be fp16."""

    def __init__(self, module: nn.Module, device: torch.device, precision: str) -> None:
        super().__init__()
        self.module = module
        self._device = device
        self._precision = precision

    def forward(self, images: torch.Tensor) -> Any:
        with autocast(self._device, self._precision):
            return self.module(images)
