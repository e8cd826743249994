"""Accuracy on the whole evaluation set: every sample once, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpcddp.data import Batch
from hpcddp.worker.inputs import to_device
from hpcddp.worker.learner import Learner


def evaluate_share(learner: Learner, batches: Iterable[Batch]) -> dict[str, Any]:
    """This rank's `samples`, `correct` and `loss_sum` over its batches.

    The model itself is called, not its DDP wrapper: ranks may have different numbers of batches and must not wait for each
    other. BatchNorm's statistics are rank 0's for all, as DDP has them before each step.
    """
    for buffer in learner.module.buffers():
        dist.broadcast(buffer, 0)
    learner.module.eval()
    samples, sums = 0, torch.zeros(2, dtype=torch.float64, device=learner.device)
    with torch.no_grad():
        for batch in batches:
            sums += _correct_and_loss(learner, to_device(batch, learner.device))
            samples += len(batch[1])
    correct, loss_sum = sums.tolist()
    return {"samples": samples, "correct": int(correct), "loss_sum": loss_sum}


def combine(shares: list[dict[str, Any]]) -> dict[str, Any]:
    """All ranks' `samples` and `correct`, and the mean `loss`."""
    samples, correct, loss_sum = (sum(share[key] for share in shares) for key in ("samples", "correct", "loss_sum"))
    return {"samples": samples, "correct": correct, "loss": loss_sum / samples if samples else None}


def _correct_and_loss(learner: Learner, batch: Batch) -> torch.Tensor:
    images, labels = batch
    with learner.autocast():
        scores = learner.module(learner.normalize(images))
    correct = (scores.argmax(dim=1) == labels).sum()
    loss = nn.functional.cross_entropy(scores.double(), labels, reduction="sum")
    return torch.stack((correct.double(), loss))
