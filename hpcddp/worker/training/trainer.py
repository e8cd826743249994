"""One optimizer step: model, precision, micro-batches and gradient exchange; and an average of the parameters over steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.point import Sharded, Workload
from hpcddp.data import Batch, Source
from hpcddp.worker.training.backward import Backward, Mark
from hpcddp.worker.training.inputs import Normalize
from hpcddp.worker.training.models import build_model
from hpcddp.worker.training.optimizers import make_optimizer
from hpcddp.worker.training.parallel import NOTHING, HandExchange, autocast, over_devices
from hpcddp.worker.training.sharding import Sharding, shard


class WeightAverage:
    """All ranks have the same one, as they have the same parameters. Buffers, as BatchNorm's statistics, are not averaged.

    Why not torch.optim.swa_utils.AveragedModel: it is a second model, which copies all buffers in every step, begins as the
    parameters are after the first step, and would be evaluated uncompiled beside the one that trains.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._parameters: list[torch.Tensor] = list(module.parameters())
        self._decay = decay
        self._average = [parameter.detach().clone() for parameter in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """After a step. At first the average moves faster: the parameters that it began with were drawn at random."""
        keep = min(self._decay, (1 + self._steps) / (10 + self._steps))
        torch._foreach_lerp_(self._average, self._parameters, 1 - keep)
        self._steps += 1

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the average's values; afterwards its own again, bit for bit."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._average)
        try:
            yield
        finally:
            self._put(own)

    def state(self) -> dict[str, Any]:
        return {"average": self._average, "steps": self._steps}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Makes it what it was at a checkpoint."""
        self._steps = state["steps"]
        for own, value in zip(self._average, state["average"], strict=True):
            own.copy_(value)

    @torch.no_grad()
    def _put(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)


Backpropagation = Callable[[torch.Tensor, Mark, "Callable[[], None] | None"], None]


@dataclass(frozen=True)
class Trainer:
    """What a step works with. `module` is the model itself, `model` the same as a step calls it: compiled, spread over devices.

    With fp16, torch's GradScaler reads on the host, once per step, whether a gradient was infinite: the host waits for the GPU.
    """

    module: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None
    """None without fp16."""
    normalize: Normalize
    device: torch.device
    precision: str
    accumulate: int
    backward: Backpropagation
    label_smoothing: float = 0.0
    average: WeightAverage | None = None
    """What is evaluated in the parameters' place; None: they are."""
    sharding: Sharding | None = None
    """None where every rank has all parameters."""

    @property
    def ddp(self) -> DistributedDataParallel | None:
        """The model as DDP has it; None where no gradients travel, or by hand."""
        return self.model if isinstance(self.model, DistributedDataParallel) else None

    @property
    def hand_exchange(self) -> HandExchange | None:
        """The model whose gradients travel by hand; None for any other."""
        return self.model if isinstance(self.model, HandExchange) else None

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The mixed precision of the workload around forward and loss; shards have a policy in its place."""
        return NOTHING if self.sharding else autocast(self.device, self.precision)

    def evaluated(self) -> contextlib.AbstractContextManager[object]:
        """Around an evaluation: the model has the parameters that are evaluated."""
        return self.average.in_place() if self.average else NOTHING

    def step(self, batch: Batch, mark: Mark) -> torch.Tensor:
        """One optimizer step on this rank's share (images N x C x H x W, labels N, on the device); the mean loss, detached."""
        loss = self.gradients(batch, mark)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.average:
            self.average.update()
        self.optimizer.zero_grad(set_to_none=True)
        mark("optimizer")
        return loss

    def gradients(self, batch: Batch, mark: Mark, *, exchange: bool = True) -> torch.Tensor:
        """Forward and backward of a step, added to the gradients there are; without `exchange` they stay the rank's own."""
        if self.accumulate == 1:
            return self._micro_step(batch, mark, exchange)
        micro_batches = list(zip(*(part.chunk(self.accumulate) for part in batch), strict=True))
        last = len(micro_batches) - 1
        losses = [self._micro_step(part, mark, exchange and number == last) for number, part in enumerate(micro_batches)]
        return torch.stack(losses).sum()

    def _micro_step(self, batch: Batch, mark: Mark, exchange: bool) -> torch.Tensor:
        """Forward and backward of a micro-batch: its share of the mean loss over the rank's batch, detached."""
        with self._exchange(exchange):
            loss = self._loss(*batch)
            if self.accumulate > 1:
                loss = loss / self.accumulate
            mark("forward")
            by_hand = self.hand_exchange.exchange if exchange and self.hand_exchange else None
            self.backward(self.scaler.scale(loss) if self.scaler else loss, mark, by_hand)
        return loss.detach()

    def _loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with self.autocast():
            scores, smoothing = self.model(self.normalize(images)), self.label_smoothing
            loss: torch.Tensor = nn.functional.cross_entropy(scores, labels, label_smoothing=smoothing)
        return loss

    def _exchange(self, now: bool) -> contextlib.AbstractContextManager[object]:
        """Gradients are averaged with the last micro-batch only."""
        if self.sharding:
            self.sharding.exchange(now)
        return NOTHING if now or self.ddp is None else self.ddp.no_sync()


def apply_settings(workload: Workload) -> None:
    """torch's process-wide switches, set before the model is built. What the workload leaves open stays as torch has it. The two
    `allow_tf32` exist in every torch and warn in none up to 2.15; 2.9 added `fp32_precision` beside them."""
    torch.backends.cudnn.benchmark = workload.cudnn_benchmark  # all batches have one shape, so the search is done once
    if workload.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = workload.tf32
        torch.backends.cudnn.allow_tf32 = workload.tf32


def make_trainer(  # noqa: PLR0913 - what is trained where, and over how many it is spread
    workload: Workload, source: Source, device: torch.device, rank: int, *, gpus: int = 1, shards: int = 1
) -> Trainer:
    """The same model in every rank (same seed), its random draws while training (dropout) different in each.

    `gpus`: devices of this process, more than one with data_parallel only; `device` is the first of them.
    `shards`: ranks that hold one copy of the parameters between them.
    """
    module = build_model(workload.model, classes=source.classes, height=source.shape[1], seed=workload.seed)
    dtype = torch.float64 if workload.precision == "fp64" else torch.float32
    sharding = None
    if workload.parallel in get_args(Sharded):
        sharding = shard(module.to(dtype=dtype), workload, device, shards)
    else:
        module = _placed(module, workload, device, dtype)
    torch.manual_seed(workload.seed + 1 + rank)
    chosen = workload.optimizer
    return Trainer(
        module=module,
        model=over_devices(module, workload, device, gpus),
        optimizer=make_optimizer(chosen, module),
        scaler=make_scaler(device) if workload.precision == "fp16" else None,
        normalize=Normalize(source.mean, source.std, dtype=dtype, device=device, channels_last=workload.channels_last),
        device=device,
        precision=workload.precision,
        accumulate=workload.accumulate,
        backward=sharding.backward if sharding else Backward(module.parameters()),
        label_smoothing=chosen.label_smoothing,
        average=WeightAverage(module, chosen.ema_decay) if chosen.ema_decay else None,
        sharding=sharding,
    )


def _placed(module: nn.Module, workload: Workload, device: torch.device, dtype: torch.dtype) -> nn.Module:
    if workload.sync_batchnorm:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    layout = torch.channels_last if workload.channels_last else torch.preserve_format
    return module.to(device=device, dtype=dtype).to(memory_format=layout)


def make_scaler(device: torch.device) -> torch.amp.GradScaler:
    """Loss scaling. Before torch 2.3 there is CUDA's class only, as fp16 is CUDA's only."""
    make = getattr(torch.amp, "GradScaler", None)
    return make(device.type) if make else torch.cuda.amp.GradScaler()
