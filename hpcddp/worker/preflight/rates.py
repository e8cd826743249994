"""How fast a piece of work is done, by the median of calls.

What the clock includes: one call with the wait for its end on the device. The first call is not timed: it allocates, and
chooses algorithms.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

FEWEST_CALLS, MOST_CALLS = 3, 1000
"""Of a collective: all ranks of it make equally many."""


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
