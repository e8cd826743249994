"""The job of preflight, before the first run: every rank measures, rank 0 judges, records, and says which nodes runs shall use.

About five seconds of measuring: ranks by themselves, then the ranks of a node, then neighbours. All nodes measure at the same
time, as training would use them: power, cooling and the network are under load. A rate is that of the median call; the clock
includes one call with the wait for its end on the device. The first call is not timed: it allocates, and chooses algorithms.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpcddp.core.comm_record import bus_share
from hpcddp.core.preflight import PreflightRecord, RankReadings, preflight_words, slow_readings, usable_hosts
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.small_job import MEET_WITHIN, begin, leave

SPARE_VARIABLE, HOSTS_VARIABLE = "HPCDDP_SPARE_NODES", "HPCDDP_HOSTS"
"""Of a job with spare nodes: how many, and the file that is to name the hosts which its runs shall use, a line each."""

PART_S = 0.9
"""Of each part; there are five, of which neighbours take up to three rounds in a third of it."""

PRODUCT_S = 0.005
"""A product of matrices shall take so long at least: launching it takes microseconds."""
SIDES = (512, 1024, 2048, 4096, 8192)
"""Of the square matrices; all ranks take the same, the smallest that is large enough on the slowest of them."""

COPIED_BYTES = {"cuda": 2**28, "cpu": 2**27}
"""More than the caches of a GPU, or a rank's share of a processor's."""
MESSAGE_BYTES = {"cuda": 2**25, "cpu": 2**23}
"""Nearly all of its time is transfer."""

FEWEST_CALLS, MOST_CALLS = 3, 1000
"""Of a collective: all ranks of it make equally many."""


def run_preflight(spec: dict[str, Any]) -> dict[str, Any]:
    """Of each rank; rank 0 writes the record and returns its content."""
    job, rank, study = begin(spec)
    group = join(rank, job.point.device, MEET_WITHIN)
    begun_s = time.monotonic()
    readings = measure_rank(group)
    ranks = group.gather_records("preflight", readings)
    group.leave()
    if not ranks:
        return {}
    slow = slow_readings(ranks)
    hosts, left_out = usable_hosts(ranks, slow, int(os.environ.get(SPARE_VARIABLE) or 0))
    record = PreflightRecord(
        job=rank.job,
        restart=rank.restart,
        unix_ns=time.time_ns(),
        took_s=round(time.monotonic() - begun_s, 3),
        device=group.device.type,
        ranks=tuple(ranks),
        slow=slow,
        excluded=tuple(left_out),
    )
    plain = leave(study.preflight_file(rank.job, rank.restart), record)
    _write_hosts(hosts)
    print(f"hpcddp: preflight: {preflight_words(record)}", flush=True)
    return plain


def _write_hosts(hosts: Sequence[str]) -> None:
    """Where the job's script reads them."""
    if file := os.environ.get(HOSTS_VARIABLE):
        Path(file).write_text("".join(f"{host}\n" for host in hosts), encoding="utf-8")


def measure_rank(group: ProcessGroup) -> RankReadings:
    """All ranks call it: what this rank finds."""
    problems: list[str] = []
    found: dict[str, float | None] = {}
    local: Mapping[str, Callable[[torch.device], float]] = {
        "matrix_flops_per_s": _matrix_rate(group),
        "memory_bytes_per_s": _memory_rate,
        **({"copy_bytes_per_s": _copy_rate} if group.device.type == "cuda" else {}),
    }
    for name, rate in local.items():
        dist.barrier(device_ids=[group.rank.gpu] if group.device.type == "cuda" else None)
        try:
            found[name] = rate(group.device)
        except RuntimeError as error:  # no room in memory: the other readings can be had all the same
            problems.append(f"rank {group.rank.rank} on {group.rank.host}: {name}: {str(error).splitlines()[0]}")
    return RankReadings(
        rank=group.rank.rank,
        host=group.rank.host,
        **found,
        node_bytes_per_s=_node_rate(group),
        neighbour_bytes_per_s=_neighbour_rate(group),
        problems=tuple(problems),
    )


def neighbour_rounds(nodes: int) -> list[list[tuple[int, int]]]:
    """Pairs of nodes in a ring, in rounds in which no node is in two pairs: each has a neighbour before and one behind it.

    Two nodes are one pair. An odd ring takes a third round for the pair that closes it.
    """
    ring = [(node, (node + 1) % nodes) for node in range(nodes if nodes > 2 else nodes - 1)]
    closing = [ring.pop()] if nodes % 2 and nodes > 2 else []
    return [each for each in (ring[::2], ring[1::2], closing) if each]


def _matrix_rate(group: ProcessGroup) -> Callable[[torch.device], float]:
    """In half precision on a GPU, where training is fastest; in fp32 on a CPU. Multiplications and additions both count."""
    dtype = torch.float16 if group.device.type == "cuda" else torch.float32
    side = int(agreed(_side(dtype, group.device), group.device))

    def rate(device: torch.device) -> float:
        return local_rate(2 * side**3, _product(side, dtype, device), device, PART_S)

    return rate


def _side(dtype: torch.dtype, device: torch.device) -> int:
    """The smallest of SIDES whose product takes long enough here."""
    slow_enough = (side for side in SIDES if call_s(_product(side, dtype, device), device) >= PRODUCT_S)
    return next(slow_enough, SIDES[-1])


def _product(side: int, dtype: torch.dtype, device: torch.device) -> Callable[[], object]:
    left, right = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty(side, side, dtype=dtype, device=device)
    return lambda: torch.mm(left, right, out=out)


def _memory_rate(device: torch.device) -> float:
    size = COPIED_BYTES[device.type]
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    return local_rate(2 * size, lambda: target.copy_(source), device, PART_S)


def _copy_rate(device: torch.device) -> float:
    """From pinned memory, as a loader's batches come."""
    size = COPIED_BYTES["cuda"]
    source = torch.ones(size, dtype=torch.uint8).pin_memory()
    target = torch.empty(size, dtype=torch.uint8, device=device)
    return local_rate(size, lambda: target.copy_(source, non_blocking=True), device, PART_S)


def _node_rate(group: ProcessGroup) -> float | None:
    """Of the ranks of this node; None of a single one. Every rank takes part in making every node's group."""
    if group.rank.ranks_per_node == 1:
        return None
    (rate,) = _rates(group, [[(node,) for node in range(group.rank.nodes)]], PART_S)
    return rate


def _neighbour_rate(group: ProcessGroup) -> float | None:
    """The faster of this node's two; None of a single node."""
    rounds = neighbour_rounds(group.rank.nodes)
    return max((rate for rate in _rates(group, rounds, PART_S / 3) if rate is not None), default=None)


def _rates(group: ProcessGroup, rounds: Sequence[Sequence[tuple[int, ...]]], for_s: float) -> list[float | None]:
    """By round, the rate of the group of nodes that this node is in; None where it is in none."""
    return [_round_rate(group, [_group_of(group, nodes) for nodes in each], each, for_s) for each in rounds]


def _round_rate(group: ProcessGroup, made: Sequence[Any], sets: Sequence[tuple[int, ...]], for_s: float) -> float | None:
    """All groups of the round at once."""
    node, device = group.rank.rank // group.rank.ranks_per_node, group.device
    size, rate = MESSAGE_BYTES[device.type], None
    for of_nodes, nodes in zip(made, sets, strict=True):
        if node in nodes:
            message = torch.zeros(size // 4, device=device)
            share = bus_share("all_reduce", len(nodes) * group.rank.ranks_per_node)
            rate = shared_rate(share * size, lambda: dist.all_reduce(message, group=of_nodes), of_nodes, device, for_s)  # noqa: B023
    agreed(0.0, device)  # nobody begins the next round while others are still in this one
    return rate


def _group_of(group: ProcessGroup, nodes: Sequence[int]) -> Any:
    per_node = group.rank.ranks_per_node
    made: Any = dist.new_group([node * per_node + rank for node in nodes for rank in range(per_node)])
    return made


def local_rate(work: float, call: Callable[[], object], device: torch.device, for_s: float) -> float:
    """Work per second of calls that this rank makes for so long."""
    _call_s(call, device)
    times_s, until_s = list[float](), time.perf_counter() + for_s
    while not times_s or time.perf_counter() < until_s:
        times_s.append(_call_s(call, device))
    return work / statistics.median(times_s)


def shared_rate(work: float, call: Callable[[], object], group: dist.ProcessGroup, device: torch.device, for_s: float) -> float:
    """The same of calls that all ranks of a group make together, as many as take so long on the rank where they take longest."""
    _call_s(call, device)
    calls = int(for_s / max(agreed(_call_s(call, device), device, group), 1e-9))
    times_s = [_call_s(call, device) for _ in range(min(max(calls, FEWEST_CALLS), MOST_CALLS))]
    return work / statistics.median(times_s)


def agreed(value: float, device: torch.device, group: dist.ProcessGroup | None = None) -> float:
    """The greatest over the ranks of the group, the same number on all; of no group, over all ranks."""
    greatest = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(greatest, dist.ReduceOp.MAX, group=group)
    return float(greatest.item())


def call_s(call: Callable[[], object], device: torch.device) -> float:
    """How long a call takes that is the second one."""
    _call_s(call, device)
    return _call_s(call, device)


def _call_s(call: Callable[[], object], device: torch.device) -> float:
    begun_s = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun_s
