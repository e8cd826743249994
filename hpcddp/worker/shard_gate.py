"""What must hold of parameters that are sharded over ranks: copies of a shard agree, and every shard is updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcddp.core.attempt_records import GateResult
from hpcddp.worker.checksums import checksum

NAME = "parameters agree"

NOTHING = checksum(())
"""Of a rank that holds no element: parameters are cut by rows, and those of a layer may be fewer than ranks."""


def shards_agree(by_rank: Sequence[Mapping[str, str]], shards: int, *, trains: bool) -> GateResult:
    """`by_rank`: each rank's checksums of its shard by when they were taken, in the order of time.

    `shards`: ranks that hold one copy between them; a rank's shard is its number modulo that. `trains`: steps changed parameters.
    """
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
        unchanged = f"{those} are what they were {first}, so that of rank {stale[0]} ({by_rank[stale[0]][last]})"
        return GateResult(name=NAME, passed=False, evidence=f"{unchanged}: the optimizer does not update what the model uses")
    copies = len(by_rank) // shards
    held = f"{len(by_rank)} rank(s) hold {shards} shard(s)" + (f", {copies} copies of each agree" if copies > 1 else "")
    updated = ", every shard was updated" if trains else ""
    sums_by_time = "; ".join(f"{when} {value}" for when, value in by_rank[0].items())
    return GateResult(name=NAME, passed=True, evidence=f"{held}{updated}; SHA-256 of rank 0 {sums_by_time}")
