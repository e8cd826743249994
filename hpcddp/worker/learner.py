"""One optimizer step: model, precision, micro-batches and gradient exchange."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.data import Batch, Source
from hpcddp.point import Workload
from hpcddp.worker.inputs import Normalize
from hpcddp.worker.models import build_model

AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}

Mark = Callable[[str], None]


@dataclass(frozen=True)
class Learner:
    """What a step works with. `module` is the model itself, `ddp` the same model with its gradients averaged over ranks."""

    module: nn.Module
    ddp: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    scaler: Any
    normalize: Normalize
    device: torch.device
    precision: str
    accumulate: int

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The mixed precision of the workload around forward and loss; nothing for fp32 and fp64."""
        dtype = AUTOCAST.get(self.precision)
        return torch.autocast(self.device.type, dtype=dtype) if dtype else contextlib.nullcontext()

    def step(self, batch: Batch, mark: Mark) -> torch.Tensor:
        """One optimizer step on this rank's share (images N x C x H x W, labels N, on the device); the mean loss, detached."""
        micro_batches = list(zip(*(part.chunk(self.accumulate) for part in batch), strict=True))
        losses = []
        for number, (images, labels) in enumerate(micro_batches, start=1):
            with self._exchange(number == len(micro_batches)):
                loss = self._loss(images, labels)
                mark("forward")
                self._backward(loss, mark)
            losses.append(loss.detach())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        mark("optimizer")
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The micro-batch's share of the mean loss over the rank's batch."""
        with self.autocast():
            loss: torch.Tensor = nn.functional.cross_entropy(self.ddp(self.normalize(images)), labels)
        return loss / self.accumulate

    def _backward(self, loss: torch.Tensor, mark: Mark) -> None:
        """Marks the end of the computation, then the end of the exchange that went on behind it.

        Autograd runs its queued callbacks in order when all gradients are there. Ours is queued by the first gradient, DDP's own,
        which waits for the exchange, by the last: so ours comes first. It runs in the compute stream, as DDP's does.
        """

        def at_the_end(_: torch.Tensor) -> None:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: mark("backward"))

        loss.register_hook(at_the_end)  # type: ignore[no-untyped-call]
        self.scaler.scale(loss).backward()
        mark("comm_exposed")

    def _exchange(self, now: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients are averaged with the last micro-batch only."""
        return contextlib.nullcontext() if now else self.ddp.no_sync()


def make_learner(workload: Workload, source: Source, device: torch.device, rank: int) -> Learner:
    """The same model in every rank (same seed), its random draws while training (dropout) different in each."""
    module = build_model(workload.model, classes=source.classes, height=source.shape[1], seed=workload.seed)
    dtype = torch.float64 if workload.precision == "fp64" else torch.float32
    layout = torch.channels_last if workload.channels_last else torch.preserve_format
    module.to(device=device, dtype=dtype).to(memory_format=layout)
    torch.manual_seed(workload.seed + 1 + rank)
    chosen = workload.optimizer
    return Learner(
        module=module,
        ddp=DistributedDataParallel(module, device_ids=[device.index] if device.type == "cuda" else None),
        optimizer=torch.optim.SGD(module.parameters(), chosen.lr, momentum=chosen.momentum, weight_decay=chosen.weight_decay),
        scaler=make_scaler(device, enabled=workload.precision == "fp16"),
        normalize=Normalize(source.mean, source.std, dtype=dtype, device=device, channels_last=workload.channels_last),
        device=device,
        precision=workload.precision,
        accumulate=workload.accumulate,
    )


def make_scaler(device: torch.device, *, enabled: bool) -> Any:
    """Loss scaling, or what leaves losses as they are. Before torch 2.3 there is CUDA's class only, as fp16 is CUDA's only."""
    make = getattr(torch.amp, "GradScaler", None)
    return make(device.type, enabled=enabled) if make else torch.cuda.amp.GradScaler(enabled=enabled)
