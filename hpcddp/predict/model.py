"""The model: gradients travel bucket by bucket while backward goes on, and each doubling of nodes loses a little besides.

Times are in seconds, sizes in bytes, shares between 0 and 1. docs/method.md has the equations, and where each constant is from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcddp.core.prediction import Limit, PredictedPoint

CALL_S, HOP_S = 20e-6, 15e-6
"""Of an all-reduce: its start, and each of the 2 log2 N messages that follow each other (NCCL itself: 8 and 14)."""

REACHED = 0.85
"""Share of a node's raw rate that all-reduces reach by RDMA; of TCP, where sites differ, it takes a measurement."""

LOST_PER_DOUBLING = 0.02
"""Of the step: jitter, stragglers, contention. Fitted to published series (tests/bench/predict_published.py)."""

BAND = 0.08
"""Half the band of one doubling, as a logarithm: it holds four of five published points."""

FORWARD = 1 / 3
"""Of a step, where nobody has measured it: backward takes twice as long as forward."""

FIXED_S, MOST_FIXED = 3e-3, 0.9
"""Of a step, what another batch does not change: launches, optimizer; at most that share of it."""

BISECTIONS = 60
"""More than a double has bits."""

MATTERS = 0.05
"""Share of a step from which on exchange or waiting for data is the limit."""


@dataclass(frozen=True)
class Network:
    """The link between nodes, as all-reduces find it."""

    bytes_per_s: float
    """Of what a node sends."""
    latency_s: float | None = None
    """Of one all-reduce; None: by CALL_S and HOP_S."""

    def all_reduce_s(self, size_bytes: float, nodes: int) -> float:
        """One all-reduce of a message between so many nodes; nothing within one."""
        if nodes == 1:
            return 0.0
        latency_s = CALL_S + 2 * math.log2(nodes) * HOP_S if self.latency_s is None else self.latency_s
        return latency_s + size_bytes * sent_share(nodes) / self.bytes_per_s


def sent_share(nodes: int) -> float:
    """Bytes a node's adapters send per byte of the message: once on two nodes (NVIDIA/nccl-tests#22), nearly twice on many."""
    return 2 * (nodes - 1) / nodes


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel together."""

    size_bytes: float
    ready: float
    """When they are complete, as a share of backward."""


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A measured point: what is predicted are more nodes like its own."""

    nodes: int
    gpus_per_node: int
    batch_per_gpu: float
    step_s: float
    """Mean over steps; of rate and batch."""
    waits: float | None = None
    """Share of the step that waits for data; None where the anchor is only a number."""
    ahead: float = FORWARD
    """Share of the step before backward: waiting for data, copies, forward. Nothing travels meanwhile."""

    @property
    def samples_per_s(self) -> float:
        """Over all its GPUs."""
        return self.nodes * self.gpus_per_node * self.batch_per_gpu / self.step_s


def step_with_exchange_s(step_s: float, nodes: int, ahead: float, buckets: Sequence[Bucket], network: Network) -> float:
    """A step on so many nodes that takes `step_s` without exchange: each bucket travels once it is ready and the one before it
    has arrived.
    """
    forward_s, end_s = ahead * step_s, 0.0
    for bucket in buckets:
        ready_s = forward_s + bucket.ready * (step_s - forward_s)
        end_s = max(end_s, ready_s) + network.all_reduce_s(bucket.size_bytes, nodes)
    return max(step_s, end_s)


def predict(  # noqa: PLR0913, PLR0917 - one argument for each of the model's inputs
    label: str, anchor: Anchor, nodes: int, batch_per_gpu: float, buckets: Sequence[Bucket], network: Network
) -> PredictedPoint:
    """The anchor's kind of point on so many nodes (at least its own), with so many samples per GPU."""

    def exchanged_s(step_s: float, at: int) -> float:
        return step_with_exchange_s(step_s, at, anchor.ahead, buckets, network)

    own_s = bisect(lambda step_s: exchanged_s(step_s, anchor.nodes), anchor.step_s, anchor.step_s)
    measured = anchor.step_s / exchanged_s(own_s, anchor.nodes)  # not 1 where the anchor's link is faster than `network`
    fixed_s = min(FIXED_S, MOST_FIXED * own_s)
    own_s = fixed_s + (own_s - fixed_s) * batch_per_gpu / anchor.batch_per_gpu
    doublings = math.log2(nodes / anchor.nodes)
    with_exchange_s = measured * exchanged_s(own_s, nodes)
    step_s = with_exchange_s * (1 + LOST_PER_DOUBLING * doublings)
    samples_per_s = nodes * anchor.gpus_per_node * batch_per_gpu / step_s
    spread = math.exp(BAND * math.sqrt(doublings))
    return PredictedPoint(
        label=label,
        samples_per_s=samples_per_s,
        low=samples_per_s / spread,
        high=samples_per_s * spread,
        step_s=step_s,
        exposed_s=max(0.0, with_exchange_s - own_s),
        waits_s=None if anchor.waits is None else anchor.waits * anchor.step_s * batch_per_gpu / anchor.batch_per_gpu,
        limit=_limit(anchor, with_exchange_s - own_s, step_s),
    )


def _limit(anchor: Anchor, exposed_s: float, step_s: float) -> Limit:
    if exposed_s > MATTERS * step_s:
        return "network"
    if anchor.waits is None:
        return "unknown"
    return "input" if anchor.waits > MATTERS else "compute"


def hidden_from_s(nodes: int, ahead: float, buckets: Sequence[Bucket], network: Network) -> float:
    """The shortest step without exchange whose exchange on so many nodes costs less than MATTERS of it."""
    total_s = sum(network.all_reduce_s(bucket.size_bytes, nodes) for bucket in buckets)

    def left_s(step_s: float) -> float:
        return step_s - step_with_exchange_s(step_s, nodes, ahead, buckets, network) / (1 + MATTERS)

    return bisect(left_s, 0.0, total_s / MATTERS)


def bisect(rising: Callable[[float], float], wanted: float, most: float) -> float:
    """The argument from 0 to `most` at which a rising function has the wanted value, by bisection; the nearer end, where none."""
    low, high = 0.0, most
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= wanted else (middle, high)
    return high
