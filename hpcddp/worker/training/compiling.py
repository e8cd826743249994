"""torch.compile before the first step, so that the time it takes is nobody's step."""

from __future__ import annotations

import time

import torch

from hpcddp.data import Batch
from hpcddp.worker.training.ddp_warmup import rehearse
from hpcddp.worker.training.train_step import TrainStep


def compile_now(learner: TrainStep, batch: Batch) -> float:
    """Seconds until forward and backward of a batch such as training has (on the device) were compiled and have run once.

    Compiling happens when a model is first called. All ranks call it, before their buckets are timed: gradients do travel,
    because in a static graph DDP cannot do without in its first backward.
    """
    began = time.perf_counter()
    rehearse(learner, batch)
    if learner.device.type == "cuda":
        torch.cuda.synchronize(learner.device)
    return time.perf_counter() - began
