"""What a profiler's trace says of steps: how long backward computed, and how long the exchange went on behind it.

A trace is what torch.profiler exports for Chrome: events with `cat`, `name`, `ts` and `dur` in us.
On a CPU the operators themselves are timed; on CUDA the kernels that they launched, matched by `correlation`.
"""

from __future__ import annotations

import bisect
import gzip
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
        return read_events(file)


def read_events(file: Path) -> list[Event]:
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
