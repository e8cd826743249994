"""`work: comm`: how long collectives take on the job's own ranks, by size.

What the clock includes: every size is called once and checked, then called back to back, first untimed and then in
REPETITIONS batches, between which a rank does nothing but read the clock (on a GPU after waiting for it): no pause lets a token
bucket fill up. A batch takes as long as on the rank where it takes longest; a call's time is that over the calls of the batch,
and the median, least and greatest over the batches are kept. Where no rank waits for the others (broadcasts of small
messages) calls that follow each other overlap, as in nccl-tests.

Whatever decides on further calls (how many, which sizes) is first agreed on by all ranks, so that all make the same ones.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

from hpcddp.core.comm_record import CommBench, CommOperation, CommSize, SkippedSize, bus_share, fit_link
from hpcddp.core.text import message_size
from hpcddp.worker.comm.collectives import COLLECTIVES, ITEM_BYTES, Collective, elements, farthest
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.telemetry.node import node_memory

SIZES = tuple(4**power for power in range(5, 16))
"""Bytes: 1 KiB, 4 KiB, ... 1 GiB."""

REPETITIONS = 5
BATCH_S = 0.02
"""How long a batch shall take at least, unless that were more than MAX_CALLS calls."""
MAX_CALLS = 8192

CALL_LIMIT_S = 1.0
"""A size whose one call would take longer is left out."""
OP_LIMIT_S = 40.0
"""No further size of an operation is begun after that: the whole takes about three minutes at most, on slow links."""

COPIES = 3
"""Messages in memory at once: input, output, and what gloo keeps for itself (its reduce-scatter is an all-reduce of a copy)."""


def bench_comm(group: ProcessGroup, sizes: Sequence[int] = SIZES, ops: Iterable[str] = COLLECTIVES) -> CommBench:
    """Times every operation by size; all ranks call it and get the same result."""
    room_bytes = -int(_agreed(group, [-_room_bytes(group)])[0])
    return CommBench(
        backend=group.backend,
        ranks=group.rank.world,
        nodes=group.rank.nodes,
        dtype="float32",
        repetitions=REPETITIONS,
        send_recv_ranks=farthest(group),
        ops={op: _bench_op(group, op, sizes, room_bytes) for op in ops},
    )


def _bench_op(group: ProcessGroup, op: str, sizes: Sequence[int], room_bytes: int) -> CommOperation:
    found, left_out, not_supported = list[CommSize](), list[SkippedSize](), None
    begun_s = time.perf_counter()
    for size in sizes:
        elapsed_s = _agreed(group, [time.perf_counter() - begun_s])[0]
        reason = impossible(op, size, group.rank.world, room_bytes) or too_slow(op, size, found, elapsed_s)
        if reason:
            left_out.append(SkippedSize(bytes=size, reason=reason))
            continue
        try:
            found.append(_bench_size(group, op, size))
        except RuntimeError as error:
            # `ProcessGroupGloo does not support reduce_scatter`, `no support for ...`
            if not isinstance(error, NotImplementedError) and "support" not in str(error):
                raise
            not_supported = str(error)
            break
    fitted = fit_link({each.bytes: each.time_min_s for each in found})
    return CommOperation(sizes=tuple(found), left_out=tuple(left_out), not_supported=not_supported, fit=fitted)


def impossible(op: str, size: int, ranks: int, room_bytes: int) -> str | None:
    """Why a message of `size` bytes cannot be had; None where it can."""
    if op == "send_recv" and ranks == 1:
        return "it needs two ranks"
    if elements(op, size, ranks) == 0:
        return f"too small to be shared among {ranks} ranks"
    if size * COPIES > room_bytes:
        return f"{COPIES} messages of {message_size(size)} need more than the {room_bytes / 2**20:.0f} MiB that a rank has"
    return None


def too_slow(op: str, size: int, timed_sizes: Sequence[CommSize], elapsed_s: float) -> str | None:
    """Why a message of `size` bytes would take too long; None where not. `timed_sizes`: those of the operation so far."""
    expected_s = timed_sizes[-1].time_s * size / timed_sizes[-1].bytes if timed_sizes else 0.0
    if expected_s > CALL_LIMIT_S:
        return f"a call would take about {expected_s:.2f} s, above the limit of {CALL_LIMIT_S:g} s"
    if elapsed_s > OP_LIMIT_S:
        return f"the {OP_LIMIT_S:g} s for {op} were used up"
    return None


def _bench_size(group: ProcessGroup, op: str, size: int) -> CommSize:
    ranks = group.rank.world
    count = elements(op, size, ranks)
    collective = COLLECTIVES[op](group, count)
    collective.call()
    wrong_rank = int(_agreed(group, [0 if collective.correct() else group.rank.rank + 1])[0]) - 1
    collective.clear()
    calls = _calls_of_a_batch(group, collective)
    times_s = _agreed(group, timed(group, collective, calls))
    time_s, sent = statistics.median(times_s), count * ITEM_BYTES
    return CommSize(
        bytes=sent,
        calls=calls,
        time_s=time_s,
        time_min_s=min(times_s),
        time_max_s=max(times_s),
        algbw_bytes_per_s=sent / time_s,
        busbw_bytes_per_s=sent / time_s * bus_share(op, ranks),
        correct=wrong_rank < 0,
        wrong_rank=wrong_rank if wrong_rank >= 0 else None,
    )


def _calls_of_a_batch(group: ProcessGroup, collective: Collective) -> int:
    """Doubled until a batch takes long enough: the first calls, which are slow, decide nothing."""
    calls = 1
    while calls < MAX_CALLS and _agreed(group, [_batch_s(group, collective, calls)])[0] < BATCH_S:
        calls *= 2
    return calls


def timed(group: ProcessGroup, collective: Collective, calls: int) -> list[float]:
    """Seconds per message on this rank, of each batch."""
    _batch_s(group, collective, 1 + calls // 5)
    return [_batch_s(group, collective, calls) / calls / collective.messages for _ in range(REPETITIONS)]


def _batch_s(group: ProcessGroup, collective: Collective, calls: int) -> float:
    begun_s = time.perf_counter()
    for _ in range(calls):
        collective.call()
    if group.device.type == "cuda":
        torch.cuda.synchronize(group.device)
    return time.perf_counter() - begun_s


def _agreed(group: ProcessGroup, values: Sequence[float]) -> list[float]:
    """The greatest of each over all ranks, the same numbers everywhere; returns when all ranks are here."""
    greatest = torch.tensor(values, dtype=torch.float64, device=group.device)
    dist.all_reduce(greatest, dist.ReduceOp.MAX)
    agreed: list[float] = greatest.tolist()
    return agreed


def _room_bytes(group: ProcessGroup) -> int:
    """Free memory: of the rank's GPU, or its share of what the node has and Slurm gives."""
    if group.device.type == "cuda":
        return torch.cuda.mem_get_info(group.device)[0]
    slurm_mb = int(os.environ.get("SLURM_MEM_PER_NODE") or 0)
    free = [node_memory().available, *([slurm_mb * 2**20] if slurm_mb else [])]
    return min(free) // group.rank.ranks_per_node
