"""The collectives that are benchmarked: how each is called, and what must come out of it.

Sizes are nccl-tests': `bytes` is the message of one rank, of a reduce-scatter its whole input and of an all-gather its whole
output. Send/receive is a message there and one back, between rank 0 and the first rank of the last node (on one node, its last
rank), and its time half of that. One direction rests while the other is used: behind a token bucket, each message's first burst
passes faster than the link. Both at once is no way out: gloo then uses one direction after the other (tried, half the rate).

Numbers are small integers, so that float32 sums are exact in any order (up to 29,000 ranks) and are compared for equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from hpcddp.worker.rendezvous import ProcessGroup

ITEM_BYTES = 4
"""Of a float32."""

ALL_GATHER, REDUCE_SCATTER = (
    ("all_gather_single", "reduce_scatter_single")
    if hasattr(dist, "all_gather_single")
    else ("all_gather_into_tensor", "reduce_scatter_tensor")
)
"""What torch calls them; it warns of the old names from 2.14 on, in the first call that is timed."""

PERIOD = 7
SLICE = PERIOD * 2**18
"""Elements that are filled or compared at once: a whole number of periods, so that every slice is alike."""

SHARED = ("reduce_scatter", "all_gather")
"""The message is made of equal shares of all ranks."""


@dataclass(frozen=True)
class Collective:
    """One collective of one size on this rank."""

    call: Callable[[], object]
    correct: Callable[[], bool]
    """Whether the buffers hold what one call leaves there; true on a rank that takes no part."""
    buffers: tuple[torch.Tensor, ...]
    messages: int = 1
    """Sent one after another in a call; a call's time is divided by them."""

    def clear(self) -> None:
        """Zeros, so that sums in place stay finite however often they are made."""
        for buffer in self.buffers:
            buffer.zero_()


def elements(op: str, size: int, ranks: int) -> int:
    """Float32 in a message of at most `size` bytes; 0 where it is too small for every rank to have a share."""
    count = size // ITEM_BYTES
    return count // ranks * ranks if op in SHARED else count


def farthest(group: ProcessGroup) -> tuple[int, int]:
    """The two ranks that send and receive; (0, 0) where there is one rank only."""
    rank = group.rank
    return 0, (rank.nodes - 1) * rank.ranks_per_node or rank.world - 1


def all_reduce(group: ProcessGroup, count: int) -> Collective:
    """Every rank gets the sum of all ranks' numbers."""
    ranks = range(group.rank.world)
    data = filled(group.device, count, _summand(group.rank.rank))
    return Collective(lambda: dist.all_reduce(data), lambda: is_filled(data, sum(map(_summand, ranks))), (data,))


def reduce_scatter(group: ProcessGroup, count: int) -> Collective:
    """Every rank gets the sum of its share of all ranks' numbers."""
    rank, ranks = group.rank.rank, group.rank.world
    shares = [filled(group.device, count // ranks, _summand(rank) * _place(share)) for share in range(ranks)]
    data, out = torch.cat(shares), filled(group.device, count // ranks, 0)
    wanted = sum(map(_summand, range(ranks))) * _place(rank)
    return Collective(lambda: getattr(dist, REDUCE_SCATTER)(out, data), lambda: is_filled(out, wanted), (data, out))


def all_gather(group: ProcessGroup, count: int) -> Collective:
    """Every rank gets the shares of all ranks."""
    ranks = group.rank.world
    data, out = filled(group.device, count // ranks, group.rank.rank + 1), filled(group.device, count, 0)
    shares = out.chunk(ranks)
    return Collective(
        lambda: getattr(dist, ALL_GATHER)(out, data),
        lambda: all(is_filled(share, rank + 1) for rank, share in enumerate(shares)),
        (data, out),
    )


def broadcast(group: ProcessGroup, count: int) -> Collective:
    """Every rank gets the numbers of rank 0."""
    data = filled(group.device, count, 3 if group.rank.rank == 0 else 0)
    return Collective(lambda: dist.broadcast(data, src=0), lambda: is_filled(data, 3), (data,))


def send_recv(group: ProcessGroup, count: int) -> Collective:
    """The two ranks that are farthest apart exchange their numbers; the others do nothing."""
    rank, (first, second) = group.rank.rank, farthest(group)
    if rank not in (first, second):
        return Collective(lambda: None, lambda: True, (), messages=2)
    peer = second if rank == first else first
    data, out = filled(group.device, count, rank + 1), filled(group.device, count, 0)

    def there_and_back() -> None:
        if rank == first:
            dist.send(data, peer)
        dist.recv(out, peer)
        if rank == second:
            dist.send(data, peer)

    return Collective(there_and_back, lambda: is_filled(out, peer + 1), (data, out), messages=2)


COLLECTIVES: dict[str, Callable[[ProcessGroup, int], Collective]] = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "send_recv": send_recv,
}
"""Name -> maker of one with so many elements."""


def filled(device: torch.device, count: int, weight: int) -> torch.Tensor:
    """`weight` times 1, 2, ..., PERIOD, 1, 2, ...: what is shifted or swapped shows."""
    data = torch.empty(count, dtype=torch.float32, device=device)
    for part, expected in _slices(data, weight):
        part.copy_(expected)
    return data


def is_filled(data: torch.Tensor, weight: int) -> bool:
    """Whether the tensor is filled with `weight`, bit for bit."""
    return all(torch.equal(part, expected) for part, expected in _slices(data, weight))


def _slices(data: torch.Tensor, weight: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    pattern = (torch.arange(min(SLICE, data.numel()), device=data.device) % PERIOD + 1).to(torch.float32) * weight
    for part in torch.split(data, SLICE):
        yield part, pattern[: part.numel()]


def _summand(rank: int) -> int:
    return rank % 16 + 1


def _place(share: int) -> int:
    return share % 5 + 1
