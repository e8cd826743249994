"""torch.compile before the first step, so that the time it takes is nobody's step."""

from __future__ import annotations

import time

import torch

from hpcddp.data import Batch
from hpcddp.worker.training.ddp_warmup import rehearse
from hpcddp.worker.training.trainer import Trainer


def compile_now(trainer: Trainer, batch: Batch) -> float:
    """Seconds until forward and backward of a batch such as training has (on the device) were compiled and have run once.

    Compiling happens when a model is first called. All ranks call it, before their buckets are timed: gradients do travel,
    because in a static graph DDP cannot do without in its first backward.
    """
    began = time.perf_counter()
    rehearse(trainer, batch)
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return time.perf_counter() - began
