"""How long collectives take in the steps of any training, and what of it no computing hides, by the events of torch's profiler.

On CUDA collectives and computing are kernels. With gloo on a CPU a collective is what its thread does, and the call of it, which
may wait; computing is every other operator of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from hpcddp.core.profiled_exchange_record import ProfiledExchange
from hpcddp.worker.comm.trace import Event

METHOD = "torch.profiler in steps behind the timed ones: "
KERNELS = METHOD + "kernels of collectives, exposed where no other kernel runs"
THREADS = METHOD + "gloo's collectives with their calls, exposed where no operator of torch runs"

STEP = "ProfilerStep#"

NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
"""NCCL's kernels and RCCL's: ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)."""

Span = tuple[float, float]


class Collective(NamedTuple):
    """One, by the name of its operation, from when to when in us."""

    operation: str
    span: Span


def profiled_exchange(events: Sequence[Event], step_clock_exposed_s: float | None) -> ProfiledExchange | None:
    """One rank's record; None where the profiler saw no collective, and so cannot say what they took."""
    timed = [event for event in events if event.get("ph") == "X"]
    steps = [event for event in timed if event["cat"] == "user_annotation" and event["name"].startswith(STEP)]
    kernels = [event for event in timed if event["cat"] == "kernel"]
    collectives = _of_kernels(kernels) if kernels else _of_threads(timed)
    if not steps or not collectives:
        return None
    computing = [_span(event) for event in kernels or timed if _computes(event)]
    calls = [] if kernels else [_span(event) for event in timed if _is_call(event)]
    travelling = [*(each.span for each in collectives), *calls]
    number = len(steps)
    of_operation = {each.operation: 0.0 for each in sorted(collectives)}
    for each in collectives:
        of_operation[each.operation] += (each.span[1] - each.span[0]) / 1e6 / number
    return ProfiledExchange(
        method=KERNELS if kernels else THREADS,
        steps=number,
        step_s=sum(event["dur"] for event in steps) / 1e6 / number,
        collectives_s=length_us(travelling) / 1e6 / number,
        exposed_s=(length_us([*travelling, *computing]) - length_us(computing)) / 1e6 / number,
        by_operation_s=of_operation,
        step_clock_exposed_s=step_clock_exposed_s,
    )


def mean_over_ranks(records: Sequence[ProfiledExchange | None]) -> ProfiledExchange | None:
    """None where it is unknown of one."""
    known = [each for each in records if each]
    if not known or len(known) < len(records):
        return None
    first, names = known[0], sorted({name for each in known for name in each.by_operation_s})
    clocks = [each.step_clock_exposed_s for each in known if each.step_clock_exposed_s is not None]
    return ProfiledExchange(
        method=first.method,
        steps=first.steps,
        step_s=fmean(each.step_s for each in known),
        collectives_s=fmean(each.collectives_s for each in known),
        exposed_s=fmean(each.exposed_s for each in known),
        by_operation_s={name: fmean(each.by_operation_s.get(name, 0.0) for each in known) for name in names},
        step_clock_exposed_s=fmean(clocks) if len(clocks) == len(known) else None,
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """The same times, in order and apart."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def length_us(spans: Iterable[Span]) -> float:
    """Of all of them, what overlaps once."""
    return sum(end - begin for begin, end in union(spans))


def _of_kernels(kernels: Iterable[Event]) -> list[Collective]:
    return [Collective(_operation(event["name"]), _span(event)) for event in kernels if "nccl" in event["name"]]


def _operation(kernel: str) -> str:
    """`all_gather` of ncclDevKernel_AllGather_RING_LL."""
    found = NCCL.search(kernel)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower() if found else "other"


def _of_threads(timed: Iterable[Event]) -> list[Collective]:
    return [Collective(event["name"].partition(":")[2], _span(event)) for event in timed if event["name"].startswith("gloo:")]


def _is_call(event: Event) -> bool:
    """Of a collective; gloo's may wait in it."""
    return bool(event["cat"] == "cpu_op" and event["name"].startswith("c10d::"))


def _computes(event: Event) -> bool:
    if event["cat"] == "kernel":
        return "nccl" not in event["name"]
    return bool(event["cat"] == "cpu_op" and event["name"].startswith("aten::"))


def _span(event: Event) -> Span:
    return event["ts"], event["ts"] + event["dur"]
