"""What became of a run's gradient exchange: hidden behind the computation, exposed, or waited for.

A bucket of gradients travels from the moment it is ready on every rank until its all-reduce has ended. On each rank:

    hidden     buckets travel while the rank still computes
    peer wait  nothing is left to compute, and of the buckets that are not done none travels: another rank is not that far
    transfer   the rest of the exposed communication: buckets travel, and averages are put back into the gradients
    busy       buckets travel, whether hidden or exposed: the union of their times, since gloo has two under way at once and
               finishes them in any order, and NCCL has them queue behind each other
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.records.buckets import Ints, RunBuckets
from hpcddp.analysis.util.regular_files import record_or_none
from hpcddp.core.comm_record import bus_share
from hpcddp.core.launch_record import FabricFacts, LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.transport_record import TransportRecord


@dataclass(frozen=True)
class Exchange:
    """Integer ns by rank and step (`own_ns`: by rank and all-reduce); transfer + peer wait = exposed, exactly."""

    transfer_ns: Ints
    peer_wait_ns: Ints
    hidden_ns: Ints
    busy_ns: Ints
    own_ns: Ints
    """What each bucket adds to the union: on NCCL, where buckets travel in order, its own time there."""
    slack_ns: Ints
    """How long before the last rank a rank was ready; 0: the others waited for it."""


@dataclass(frozen=True)
class Communication:
    """One run's exchange: means over ranks and those steady steps whose all-reduces were recorded, where nothing else is said.

    Where a rank's clock is not known nobody knows when a bucket travels: what is None here is not either, and `ranks` has no row.
    """

    transfer_ns: float | None
    peer_wait_ns: float | None
    hidden_ns: float | None
    busy_ns: float | None
    steps: int
    """How many there are of these."""
    step_bytes: int
    """Gradients of one step as they travel."""
    clock_error_ns: int | None
    ranks: pd.DataFrame
    """By rank: `rank`, `host`, `last` (the share of all-reduces at which it was the last to be ready), `slack_ns`, the
    median over all-reduces, and the means `transfer_ns`, `peer_wait_ns`, `hidden_ns`."""
    buckets: pd.DataFrame
    """By `bucket` (its index) and `bytes`: medians of `own_ns`, and of `slack_ns` of the first rank to be ready; nan: unknown."""


def communication(run: RunBuckets) -> Communication:
    """A run's exchange from its buckets; at least one steady step."""
    found = exchange_times(run) if run.aligned else None
    return Communication(
        transfer_ns=float(found.transfer_ns.mean()) if found else None,
        peer_wait_ns=float(found.peer_wait_ns.mean()) if found else None,
        hidden_ns=float(found.hidden_ns.mean()) if found else None,
        busy_ns=float(found.busy_ns.mean()) if found else None,
        steps=run.start_ns.shape[1],
        step_bytes=int(np.median(np.bincount(run.step, run.size_bytes, run.start_ns.shape[1]))),
        clock_error_ns=run.clock_error_ns,
        ranks=_by_rank(run, found) if found else pd.DataFrame(),
        buckets=_by_bucket(run, found),
    )


def exchange_times(run: RunBuckets) -> Exchange:
    """Every rank's view of every step."""
    last_ready = run.ready_ns.max(axis=0)
    bounds = np.searchsorted(run.step, np.arange(run.start_ns.shape[1] + 1))
    views = [np.empty_like(run.start_ns) for _ in range(4)] + [np.empty_like(run.ready_ns) for _ in range(2)]
    for rank in range(len(run.hosts)):  # what one takes stays in the cache
        for of_ranks, of_rank in zip(views, _view(run, rank, last_ready, bounds), strict=True):
            of_ranks[rank] = of_rank
    return Exchange(*views)


def _view(run: RunBuckets, rank: int, last_ready: Ints, bounds: NDArray[np.intp]) -> tuple[Ints, ...]:
    """One rank's, in the order of Exchange's fields. `bounds`: where each step's all-reduces begin, and the end."""
    start, begin, end = (times[rank][run.step] for times in (run.start_ns, run.begin_ns, run.end_ns))
    ready, done = run.ready_ns[rank], run.done_ns[rank]
    travels = np.minimum(last_ready, done)  # clocks err: no bucket is done before it travels
    own_begin, own_end = newly_covered(travels, done, start, end)
    own = _lengths(own_begin, own_end)
    busy = _sums(own, bounds)
    hidden = _sums(_lengths(own_begin, np.minimum(own_end, begin)), bounds)
    peer_wait = _sums(_lengths(*newly_covered(ready, done, begin, end)), bounds) - (busy - hidden)
    transfer = run.end_ns[rank] - run.begin_ns[rank] - peer_wait
    return transfer, peer_wait, hidden, busy, own, last_ready - ready


def newly_covered(begin: Ints, end: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Of each of a rank's intervals, cut to its window, the begin and the end of what none that begins earlier covers; the end
    is not behind the begin where there is nothing. Their lengths add up to that of the union. Windows follow each other without
    overlap.
    """
    begin, end = np.minimum(np.maximum(begin, low), high), np.minimum(np.maximum(end, low), high)
    order = None if _ascend(begin) else np.argsort(begin, kind="stable")
    if order is not None:
        begin, end = begin[order], end[order]
    latest = end if _ascend(end) else np.maximum.accumulate(end)
    np.maximum(begin[1:], latest[:-1], out=begin[1:])
    return (begin, end) if order is None else (_put_back(begin, order), _put_back(end, order))


def _put_back(ordered: Ints, order: NDArray[np.intp]) -> Ints:
    values = np.empty_like(ordered)
    values[order] = ordered
    return values


def _lengths(begin: Ints, end: Ints) -> Ints:
    """0 where the end is not behind the begin."""
    lengths: Ints = np.maximum(end - begin, 0)
    return lengths


def _ascend(times: Ints) -> bool:
    return bool((times[1:] >= times[:-1]).all())


def overlap_share(hidden: float, busy: float) -> float | None:
    """Hidden communication / all of it; None where nothing travelled."""
    return hidden / busy if busy else None


def algorithm_bandwidth(size_bytes: float, seconds: float) -> float | None:
    """Bytes of gradients per second."""
    return size_bytes / seconds if seconds else None


def bus_bandwidth(algorithm: float | None, ranks: int) -> float | None:
    """What the links carried; 0 for one rank."""
    return None if algorithm is None else algorithm * bus_share("all_reduce", ranks)


def _sums(values: Ints, bounds: NDArray[np.intp]) -> Ints:
    """Between each bound and the next; 0 where they are the same."""
    sums = np.concatenate([[0], np.cumsum(values)])[bounds]
    by_step: Ints = sums[1:] - sums[:-1]
    return by_step


def _by_rank(run: RunBuckets, found: Exchange) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "rank": np.arange(len(run.hosts)),
            "host": run.hosts,
            "last": (found.slack_ns == 0).mean(axis=1),
            "slack_ns": np.median(found.slack_ns, axis=1),
            "transfer_ns": found.transfer_ns.mean(axis=1),
            "peer_wait_ns": found.peer_wait_ns.mean(axis=1),
            "hidden_ns": found.hidden_ns.mean(axis=1),
        }
    )


def _by_bucket(run: RunBuckets, found: Exchange | None) -> pd.DataFrame:
    """DDP rebuilds its buckets after the first step: an index may stand for several sizes where there is no warm-up."""
    times: dict[str, Any] = {"own_ns": math.nan, "slack_ns": math.nan}
    if found:
        times = {"own_ns": found.own_ns.mean(axis=0), "slack_ns": found.slack_ns.max(axis=0)}
    rows = pd.DataFrame({"bucket": run.index, "bytes": run.size_bytes, **times})
    return rows.groupby(["bucket", "bytes"], as_index=False).median()


NEAR = ("PIX", "PXB")
"""Of the topology's matrix: GPU and adapter below one PCIe switch, or several: the furthest at which NCCL uses GPUDirect RDMA
unless it is told otherwise (src/graph/paths.cc, ncclTopoCheckGdr: PATH_PXB)."""


@dataclass(frozen=True, kw_only=True)
class RunNetwork:
    """Of one run."""

    transport: TransportRecord
    fabric: FabricFacts
    full_nodes: bool | None
    """Whether its ranks have all GPUs of their nodes; None where the profile does not say how many there are."""
    near: bool | None
    """Whether a GPU of the node type is near an adapter; None where the profile has no such matrix."""


def read_network(attempt: Path, point: Point | None, launch: LaunchRecord) -> RunNetwork | None:
    """None where no network was recorded: a single rank, or records of an earlier version."""
    transport = record_or_none(TransportRecord, attempt / "transport.json")
    if transport is None:
        return None
    profile = launch.profile_facts()
    kind = profile.node_type(point.layout.node_type if point else None)
    return RunNetwork(
        transport=transport,
        fabric=profile.fabric,
        full_nodes=None if kind.gpus is None else launch.ranks_per_node >= kind.gpus,
        near=_near(kind.links.topology),
    )


def _near(topology: Mapping[str, tuple[str, ...]]) -> bool | None:
    """Whether any GPU has an adapter near it."""
    names = list(topology)
    links = [
        word
        for name, row in topology.items()
        if name.startswith("GPU")
        for other, word in zip(names, row, strict=False)
        if not other.startswith("GPU")
    ]
    return any(word in NEAR for word in links) if links else None
