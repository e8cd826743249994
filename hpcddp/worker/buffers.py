"""What every rank has in a model's buffers (BatchNorm's running statistics) when DDP calls it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from hpcddp.worker.checksums import checksum
from hpcddp.worker.training.trainer import Trainer


class _Reached(Exception):
    """The checksum."""


def buffers_at_next_forward(trainer: Trainer) -> str | None:
    """Checksum of the buffers as the next forward would use them; None for a model without any, or where no rank hands them on.

    All ranks call it, with DDP and where gradients travel by hand. Sharded models hand on nothing before a forward: each rank has
    statistics of its own until rank 0's are handed to all here, as before an evaluation.

    Between steps they differ by rank, by design: each has seen its own samples, and DDP hands rank 0's to all at the beginning of
    a forward. That forward is begun and left again before the model computes: nothing changes, nothing needs compiling.
    """
    if trainer.sharding:
        for buffer in trainer.module.buffers():
            dist.broadcast(buffer, 0)
    replica = trainer.ddp or trainer.hand_exchange
    if replica is None or next(trainer.module.buffers(), None) is None:
        return None

    def leave(*_: Any) -> None:
        raise _Reached(checksum(trainer.module.buffers()))

    hook = replica.module.register_forward_pre_hook(leave)
    try:
        with torch.no_grad():
            replica(torch.zeros(1))
    except _Reached as reached:
        return str(reached)
    finally:
        hook.remove()
    raise AssertionError("the forward of all ranks did not call the model")
