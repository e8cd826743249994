"""What a profiler's trace says of steps: how long backward computed, and how long the exchange went on behind it.

A trace is what torch.profiler exports for Chrome: events with `cat`, `name`, `ts` and `dur` in us. On a CPU the operators are
timed; on CUDA the kernels that they launched, matched by `correlation`. And, in the steps of any training, how long collectives
take and what of it no computing hides: on CUDA both are kernels; with gloo on a CPU a collective is what its thread does, and the
call of it, which may wait, and computing is every other operator of torch.
"""

from __future__ import annotations

import bisect
import gzip
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from hpcddp.core.attempt_records import ProfiledExchange

Event = dict[str, Any]

NODE_OF_BACKWARD = "autograd::engine::evaluate_function"
"""The engine's own name for each function it calls in backward; DDP's copies into buckets and its hook are in the last ones."""

EXCHANGES = ("gloo:", "nccl", "copy_bucket_to_grad")
"""In the names of all-reduces, and of DDP's copies of what they brought."""

KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")


class ProfiledStep(NamedTuple):
    """One step."""

    backward_s: float
    """Sum of the times of backward's operators (CUDA: of their kernels)."""
    exposed_s: float
    """From the end of the last of them to the end of the exchange; 0 without one."""


def events_of(profiler: Any) -> list[Event]:
    """What torch.profiler saw, and exports once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json.gz"
        profiler.export_chrome_trace(str(file))
        return read_trace(file)


def read_trace(file: Path) -> list[Event]:
    """Of a trace that was exported."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        events: list[Event] = json.load(text)["traceEvents"]
    return events


def profiled_steps(events: Sequence[Event], name: str) -> list[ProfiledStep]:
    """The steps that were run inside a record_function of this name, in order."""
    timed = [event for event in events if event.get("ph") == "X"]
    steps = sorted((event for event in timed if event["cat"] == "user_annotation" and event["name"] == name), key=_start)
    return [_profiled_step([event for event in timed if _start(step) <= _start(event) < _end(step)], timed) for step in steps]


def has_kernels(events: Iterable[Event]) -> bool:
    """Whether the profiler could watch a GPU: without, operators are timed, which on CUDA only launch what computes."""
    return any(event.get("cat") == "kernel" for event in events)


def _profiled_step(inside: list[Event], timed: list[Event]) -> ProfiledStep:
    nodes = sorted((event for event in inside if event["name"].startswith(NODE_OF_BACKWARD)), key=_start)
    launches = {event["args"]["correlation"]: event for event in inside if event["cat"] in LAUNCHES}
    kernels = [event for event in timed if event["cat"] in KERNELS and event["args"].get("correlation") in launches]
    if not kernels:
        return _tail(nodes, [event for event in inside if _is_exchange(event)])
    launched = [(launches[kernel["args"]["correlation"]], kernel) for kernel in kernels]
    begun = [_start(node) for node in nodes]
    computing = [kernel for launch, kernel in launched if _within(launch, nodes, begun) and not _is_exchange(kernel)]
    behind = [kernel for launch, kernel in launched if _is_exchange(kernel) or _start(launch) > _end(nodes[-1])]
    return _tail(computing, behind)


def _tail(computing: Iterable[Event], exchange: Iterable[Event]) -> ProfiledStep:
    computed_us = max(map(_end, computing))
    exchanged_us = max(map(_end, exchange), default=computed_us)
    return ProfiledStep(sum(event["dur"] for event in computing) / 1e6, max(0.0, exchanged_us - computed_us) / 1e6)


def _within(event: Event, nodes: list[Event], begun: list[float]) -> bool:
    """Whether it began during one of `nodes`, which began in this order."""
    before = bisect.bisect_right(begun, _start(event))
    return before > 0 and _start(event) < _end(nodes[before - 1])


def _is_exchange(event: Event) -> bool:
    return any(word in event["name"] for word in EXCHANGES)


def _start(event: Event) -> float:
    start: float = event["ts"]
    return start


def _end(event: Event) -> float:
    end: float = event["ts"] + event["dur"]
    return end


METHOD = "torch.profiler in steps behind the timed ones: "
COLLECTIVE_KERNELS = METHOD + "kernels of collectives, exposed where no other kernel runs"
THREADS = METHOD + "gloo's collectives with their calls, exposed where no operator of torch runs"

STEP = "ProfilerStep#"

NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
"""NCCL's kernels and RCCL's: ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)."""

Span = tuple[float, float]


class TracedCollective(NamedTuple):
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
    of_torch = [] if kernels else [event for event in timed if event["cat"] == "cpu_op"]
    calls = [_span(event) for event in of_torch if event["name"].startswith("c10d::")]  # gloo's may wait in them
    others = [event for event in kernels if "nccl" not in event["name"]]
    computing = [_span(event) for event in others or of_torch if others or event["name"].startswith("aten::")]
    travelling = [*(each.span for each in collectives), *calls]
    number = len(steps)
    of_operation = {each.operation: 0.0 for each in sorted(collectives)}
    for each in collectives:
        of_operation[each.operation] += (each.span[1] - each.span[0]) / 1e6 / number
    return ProfiledExchange(
        method=COLLECTIVE_KERNELS if kernels else THREADS,
        steps=number,
        step_s=sum(event["dur"] for event in steps) / 1e6 / number,
        collectives_s=length_us(travelling) / 1e6 / number,
        exposed_s=(length_us([*travelling, *computing]) - length_us(computing)) / 1e6 / number,
        by_operation_s=of_operation,
        step_clock_exposed_s=step_clock_exposed_s,
    )


def mean_exchange(records: Sequence[ProfiledExchange | None]) -> ProfiledExchange | None:
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


def _of_kernels(kernels: Iterable[Event]) -> list[TracedCollective]:
    return [TracedCollective(_operation(event["name"]), _span(event)) for event in kernels if "nccl" in event["name"]]


def _operation(kernel: str) -> str:
    """`all_gather` of ncclDevKernel_AllGather_RING_LL."""
    found = NCCL.search(kernel)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower() if found else "other"


def _of_threads(timed: Iterable[Event]) -> list[TracedCollective]:
    return [
        TracedCollective(event["name"].partition(":")[2], _span(event)) for event in timed if event["name"].startswith("gloo:")
    ]


def _span(event: Event) -> Span:
    return event["ts"], event["ts"] + event["dur"]
