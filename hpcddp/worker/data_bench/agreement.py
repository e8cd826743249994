"""One number over all ranks, the same everywhere."""

from __future__ import annotations

import torch
import torch.distributed as dist

from hpcddp.worker.rendezvous import ProcessGroup


def all_greatest(group: ProcessGroup, value: float) -> float:
    """Returns when all ranks are here."""
    return _reduced(group, value, dist.ReduceOp.MAX)


def all_least(group: ProcessGroup, value: float) -> float:
    """The same of the smallest."""
    return -_reduced(group, -value, dist.ReduceOp.MAX)


def all_sum(group: ProcessGroup, value: float) -> float:
    """The same of the sum."""
    return _reduced(group, value, dist.ReduceOp.SUM)


def _reduced(group: ProcessGroup, value: float, operation: dist.ReduceOp.RedOpType) -> float:
    number = torch.tensor([value], dtype=torch.float64, device=group.device)
    dist.all_reduce(number, operation)
    return float(number.item())
