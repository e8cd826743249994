"""What ranks compare: checksums instead of a model's tensors, and what the model computes.

Checksums of parameters, of the buffers that every rank has when DDP calls the model (BatchNorm's running statistics), and of
sharded parameters: copies of a shard agree, and every shard is updated. And one forward of the same batch on every rank: what
differs by rank outside parameters and buffers shows in what it computes.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpcddp.core.attempt_records import GateResult
from hpcddp.data.sampling import generator_for
from hpcddp.data.source import to_bytes
from hpcddp.worker.rank_result import ForwardScores
from hpcddp.worker.training.ddp_warmup import restored
from hpcddp.worker.training.trainer import Trainer


def checksum(tensors: Iterable[Tensor]) -> str:
    """SHA-256 over all elements that this rank has, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for tensor in tensors:
        local = getattr(tensor, "to_local", None)  # of a tensor that is sharded over ranks
        digest.update(to_bytes(local() if local else tensor))
    return digest.hexdigest()[:16]


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
    raise AssertionError("no rank's forward called the model")


NAME = "parameters agree"

NOTHING = checksum(())
"""Of a rank that holds no element: parameters are cut by rows, and those of a layer may be fewer than ranks."""


def shards_agree(by_rank: Sequence[Mapping[str, str]], shards: int, *, trains: bool) -> GateResult:
    """`by_rank`: each rank's checksums of its shard by when they were taken, in the order of time. `shards`: ranks that hold one
    copy between them; a rank's shard is its number modulo that. `trains`: steps changed parameters."""
    ranks = range(len(by_rank))
    for when in by_rank[0]:
        sums = [rank_sums.get(when) for rank_sums in by_rank]
        odd = [rank for rank in ranks if sums[rank] != sums[rank % shards]]
        if odd:
            those = f"{when} {len(odd)} of {len(by_rank)} ranks differ from the first copy of their shard"
            first = f"rank {odd[0]} has {sums[odd[0]]}, rank {odd[0] % shards} {sums[odd[0] % shards]}"
            return GateResult(name=NAME, passed=False, evidence=f"{those}: {first}")
    first, *_, last = by_rank[0] if len(by_rank[0]) > 1 else (*by_rank[0], *by_rank[0])
    stale = [rank for rank in ranks if NOTHING != by_rank[rank][first] == by_rank[rank][last]] if trains else []
    if stale:
        those = f"{len(stale)} of {len(by_rank)} shards" if len(stale) < len(by_rank) else "no shard was updated: all"
        unchanged = f"{those} are unchanged since {first}, such as that of rank {stale[0]} ({by_rank[stale[0]][last]})"
        return GateResult(name=NAME, passed=False, evidence=f"{unchanged}: the optimizer does not update what the model uses")
    copies = len(by_rank) // shards
    held = f"{len(by_rank)} rank(s) hold {shards} shard(s)" + (f", {copies} copies of each agree" if copies > 1 else "")
    updated = ", every shard was updated" if trains else ""
    sums_by_time = "; ".join(f"{when} {value}" for when, value in by_rank[0].items())
    return GateResult(name=NAME, passed=True, evidence=f"{held}{updated}; SHA-256 of rank 0 {sums_by_time}")


SAMPLES = 2
"""Random pictures: ranks that see other data have a gate of their own."""

VALUES = 64
"""Of the scores, evenly spread: of two samples of 1,000 classes one in thirty. A value that differs by rank moves all of them."""

SEED = 7
"""Of what a model draws at random in evaluation mode, too."""


def probe(trainer: Trainer, shape: tuple[int, int, int]) -> ForwardScores:
    """What this rank computes, or why it could not. All ranks call it, outside the timed steps.

    The model itself is called as evaluation calls it, in evaluation mode. Modes, buffers and random numbers are afterwards what
    they were, and cuDNN looks for no algorithm, so that training goes on to the same bits.
    """
    images = torch.randint(256, (SAMPLES, *shape), dtype=torch.uint8, generator=generator_for("probe", shape))
    try:
        with restored(trainer.module, trainer.device), _evaluating(trainer.module), _without_search(), torch.no_grad():
            torch.manual_seed(SEED)
            with trainer.autocast():
                scores = trainer.module(trainer.normalize(images.to(trainer.device)))
            found = scores.double().flatten().cpu()
            if trainer.sharding:
                trainer.sharding.reshard()
    except Exception as error:  # whatever a user's model says to two random pictures: it may still train on its own
        print(f"hpcddp: the model was not compared over ranks: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ForwardScores(error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
    return ForwardScores(values=tuple(found[torch.linspace(0, len(found) - 1, VALUES).long()].tolist()))


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    before = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for each, training in before:
            each.training = training


@contextlib.contextmanager
def _without_search() -> Iterator[None]:
    cudnn: Any = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = False
    try:
        yield
    finally:
        cudnn.benchmark = before
