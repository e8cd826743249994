"""Communication-bound and latency-bound: gradients travel with nothing left to compute; and what NCCL's own log says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.communication import RunNetwork
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.context import AGAIN, LIMITED, Advice, Case, PointRow, Set, Verdict, phrase, run_numbers, span
from hpcddp.analysis.verdicts.straggler import waiting_share
from hpcddp.core.text import count
from hpcddp.core.transport_record import transport_words

COMM_SHARE = 0.15
"""Share of the step, which means an efficiency of 85 %: 8 V100 or A100 of one node reach 84-87 % in mixed precision."""

LINK_FULL = 0.7
"""Share of the bandwidth that bench comm fitted to large messages: buckets of some MB reach it on a sound link."""

LATENCY_SHARE = 0.5
"""Share of the time that gradients travel. Above it, the latency of calls costs more than the bandwidth."""

BUCKET = "workload.ddp.bucket_cap_mb"
DEFAULT_CAP_MB = 25
"""DDP's own bucket size."""

LATENCY_EXPOSED = 0.10
"""Exposed communication below this share of the step is not latency-bound."""

SMALL_BUCKET = 256 * 2**10
"""Bytes per bucket where no latency was measured: 25 us at 10 GB/s, about what a call costs between nodes."""

NOT_SPLIT = phrase("Separate transfer from synchronization wait with ", Set({"measure.comm": "on"}), ".")
"""Advice where exposed communication is all that is known."""

BY_HAND = phrase(
    "Send gradients during backward with ",
    Set({"workload.parallel": "ddp"}),
    ". Gradient averaging by hand overlaps with no computation.",
)
"""Advice where that is why communication is exposed."""


def communication_bound(case: Case) -> Iterator[Verdict]:
    """Ranks wait while gradients travel, and not because there are many small exchanges."""
    by_latency = {key: _by_latency(case, series) for key, series in case.points.groupby("series", sort=False)}
    for found in context.found_points(case, lambda _, row: _comm_share(case, row, by_latency[row["series"]])):
        rows, shares = found.rows, found.values
        split = [row for row in rows if pd.notna(row["transfer_s"])]
        worst = max(split or rows, key=lambda row: _exposed_share(row) or 0.0)
        what = "gradient transfer" if len(split) == len(rows) else "communication (transfer or waiting for other ranks)"
        said = found.verdict(
            evidence=f"Exposed {what} takes {span(shares)} of the step ({run_numbers(found.runs)}).{_link_words(case, worst)}",
            todo=_bound_advice(case, rows, worst),
            numbers={"exposed_share_low": min(shares), "exposed_share_high": max(shares), **_link(case, worst)},
            weight=LIMITED + max(shares),
        )
        yield replace(said, brief=f"{span(shares)} of the step")


def _bound_advice(case: Case, rows: Sequence[PointRow], worst: PointRow) -> Advice:
    point = case.point_of(worst)
    if point.by_hand:
        return BY_HAND
    if point.sharded:
        return context.measured_advice(case, rows, context.OF_SHARDS) or _sharded_advice(case, worst)
    return context.measured_advice(case, rows, context.EXCHANGING) or _comm_advice(case, worst)


def comm_share(case: Case, row: PointRow) -> float | None:
    """Exposed transfer as a share of the step; None below COMM_SHARE, or where latency is the cause. Where transfer is not
    known, it is exposed communication less what ranks wait for the slowest of them, by step rows. Points without the hook are
    taken to be as those of their series that have it."""
    return _comm_share(case, row, _by_latency(case, case.points[case.points["series"] == row["series"]]))


def _by_latency(case: Case, series: pd.DataFrame) -> set[str]:
    """Layouts of a series at which latency holds the exchange back."""
    return {context.layout(row) for _, row in series.iterrows() if latency_share(case, row) is not None}


def _comm_share(case: Case, row: PointRow, by_latency: set[str]) -> float | None:
    share = _exposed_share(row)
    if share is not None and pd.isna(row["transfer_s"]):
        share -= waiting_share(case, row)
    known = context.layout(row) in by_latency or (by_latency and pd.isna(row["transfer_s"]))
    return None if share is None or share < COMM_SHARE or known else share


def _exposed_share(row: PointRow) -> float | None:
    exposed = row["transfer_s"] if pd.notna(row["transfer_s"]) else row["comm_exposed_s"]
    if row["ranks"] < 2 or pd.isna(exposed):
        return None
    return float(exposed / context.step_s(row))


def _link(case: Case, row: PointRow) -> dict[str, float]:
    """Bus bandwidth that gradients reached, and that of bench comm on the same layout."""
    fitted = _fit(case, row)
    pairs = {"busbw_bytes_per_s": row["busbw_bytes_per_s"], "fitted_busbw_bytes_per_s": fitted.get("busbw_bytes_per_s")}
    return {name: float(value) for name, value in pairs.items() if value is not None and pd.notna(value)}


def _fit(case: Case, row: PointRow) -> Mapping[str, Any]:
    """What bench comm fitted to the all-reduce on the point's layout; empty where it was not measured."""
    same = (case.fits["op"] == "all_reduce") & (case.fits["nodes"] == row["nodes"]) & (case.fits["ranks"] == row["ranks"])
    found = case.fits[same & (case.fits["gpu"].fillna("") == ("" if pd.isna(row["gpu"]) else row["gpu"]))]
    return {} if found.empty else {str(name): value for name, value in found.iloc[0].items()}


def _link_words(case: Case, row: PointRow) -> str:
    rates = {name: f"{quantity(bytes_per_s / 1e9)} GB/s" for name, bytes_per_s in _link(case, row).items()}
    reached, fitted = rates.get("busbw_bytes_per_s"), rates.get("fitted_busbw_bytes_per_s")
    against = f"; `hpcddp bench comm` fitted {fitted}" if fitted else ""
    return f" Gradients reach {reached} of bus bandwidth{against}." if reached else ""


def _comm_advice(case: Case, row: PointRow) -> Advice:
    link, workload = _link(case, row), case.point_of(row).workload
    reached, fitted = link.get("busbw_bytes_per_s"), link.get("fitted_busbw_bytes_per_s")
    larger = context.larger_batch(case, row)
    if pd.isna(row["transfer_s"]) and pd.notna(row["step_hook_s"]):
        compared = "They were not compared, so transfer and synchronization wait cannot be separated"
        return f"Read the note on the ranks' clocks. {compared}. {AGAIN}"
    if pd.isna(row["transfer_s"]):
        return NOT_SPLIT
    if reached is None or fitted is None:
        return phrase("Measure the link with `hpcddp bench comm SWEEP.yaml`. Exchange less often with ", larger, ".")
    if reached < LINK_FULL * fitted:
        cap = workload.ddp.bucket_cap_mb or DEFAULT_CAP_MB
        buckets = Set({BUCKET: 4 * cap})
        return phrase("Use larger buckets with ", buckets, ", or a larger batch with ", larger, ". The link has spare bandwidth.")
    if workload.ddp.compression == "none" and workload.precision != "fp64":
        half = Set({"workload.ddp.compression": "bf16"})
        return phrase("Halve the bytes with ", half, ", or exchange less often with ", larger, ". The link is saturated.")
    return phrase("Exchange less often with ", larger, ". The link is saturated.")


def _sharded_advice(case: Case, row: PointRow) -> Advice:
    """Which part ranks wait for is in the table of sharded parameters."""
    point, ways = case.point_of(row), list[str | Set]()
    if point.workload.parallel == "fsdp" and point.layout.nodes > 1 and point.layout.gpus_per_node > 1:
        ways += ["Gather parameters within a node with ", Set({"workload.parallel": "hsdp"}), ". "]
    if point.workload.fsdp.reshard_after_forward:
        once = Set({"workload.fsdp.reshard_after_forward": False})
        ways += ["Gather parameters once per step, which takes more memory, with ", once, ". "]
    return phrase(tuple(ways), "Do more work between exchanges with ", context.larger_batch(case, row), ".")


def latency_bound(case: Case) -> Iterator[Verdict]:
    """Most of the exposed communication is the cost of calls, not of bytes."""
    for found in context.found_points(case, latency_share):
        rows, shares = found.rows, found.values
        worst = rows[shares.index(max(shares))]
        number, latency_s = _buckets(case, worst), _latency_s(case, worst)
        cost = f" Each takes at least {quantity(latency_s * 1e6)} µs, whatever its size." if latency_s else ""
        size_kib = float(worst["step_bytes"]) / number / 1024
        said = found.verdict(
            evidence=f"Exposed communication takes {span(shares)} of the step ({run_numbers(found.runs)}). "
            f"A step has {count(number, 'all-reduce')} of {quantity(size_kib)} KiB on average.{cost}",
            todo=context.measured_advice(case, rows, context.EXCHANGING) or _latency_advice(case, worst, number),
            numbers={"exposed_share_high": max(shares), "buckets": number, "bucket_bytes": size_kib * 1024}
            | ({"latency_s": latency_s} if latency_s else {}),
            weight=LIMITED + max(shares),
        )
        yield replace(said, brief=f"{span(shares)} of the step")


def latency_share(case: Case, row: PointRow) -> float | None:
    """Exposed communication as a share of the step, of a point whose buckets cost mostly latency; None for any other point."""
    share, number = _exposed_share(row), _buckets(case, row)
    if share is None or share < LATENCY_EXPOSED or not number or pd.isna(row["transfer_s"]):
        return None
    latency_s = _latency_s(case, row)
    if latency_s is None:
        return share if row["step_bytes"] / number <= SMALL_BUCKET else None
    return share if number * latency_s >= LATENCY_SHARE * row["comm_busy_s"] else None


def _latency_s(case: Case, row: PointRow) -> float | None:
    latency_s = _fit(case, row).get("latency_s")
    return None if latency_s is None or pd.isna(latency_s) else float(latency_s)


def _buckets(case: Case, row: PointRow) -> int:
    """Exchanges per step, in the point's first run with the hook."""
    numbers = (case.exchanges.get(run.key) for run in case.runs_of(row))
    return next(filter(None, numbers), 0)


def _latency_advice(case: Case, row: PointRow, number: int) -> Advice:
    cap = case.point_of(row).workload.ddp.bucket_cap_mb or DEFAULT_CAP_MB
    if number > 2:
        larger = DEFAULT_CAP_MB if cap < DEFAULT_CAP_MB else 4 * cap
        return phrase("Use fewer, larger buckets with ", Set({BUCKET: larger}), ".")
    larger_batch = context.larger_batch(case, row)
    return phrase("Do more work between exchanges with ", larger_batch, ". The model is small for this number of ranks.")


OF_TCP, OF_ADAPTERS, OF_GDR = 0.95, 0.5, 0.4
"""Shares that weigh these: on Alps bus bandwidth is 5.4 GB/s by TCP instead of 123 (docs.cscs.ch, NCCL); of adapters some are in
use; without GPUDirect RDMA an all-reduce fell from 180 to 10 GB/s (NVIDIA/nccl#1676), on GH200 by a sixth (NVIDIA/nccl#1579)."""

RDMA_FABRICS = ("infiniband", "roce")
"""Words of a fabric's name that say RDMA where the profile has no `protocol`."""

NO_GDR = ("geforce", "titan", "gb10")
"""Of names of GPUs: NVIDIA has GPUDirect RDMA for data centre and workstation cards."""

PEER_MODULE = "lsmod | grep peermem"


@dataclass(frozen=True)
class TransportFault:
    """What is wrong with a run's network, and what to do."""

    evidence: str
    advice: str
    share: float = 1.0


def tcp_fault(network: RunNetwork) -> TransportFault | None:
    """Plain TCP between nodes that have RDMA. Any counts: NCCL takes it only where it found nothing else, or was told to."""
    record = network.transport
    if not record.is_tcp or not _has_rdma(network) or len(record.nodes) < 2:
        return None
    remarks = f" ({'; '.join(record.remarks)})" if record.remarks else ""
    words = f"Ranks use {transport_words(record)}, but the profile's network is {network.fabric.name or 'RDMA'}{remarks}"
    return TransportFault(words, _tcp_advice(network))


def adapter_fault(network: RunNetwork) -> TransportFault | None:
    """Fewer adapters in use than the profile has. One is one too few: each is an equal share of the node's bandwidth."""
    record, expected = network.transport, network.fabric.adapters_per_node
    fewest = record.fewest_adapters
    if record.is_tcp or len(record.nodes) < 2 or not expected or not fewest or network.full_nodes is not True:
        return None
    host, used = fewest
    if len(used) >= expected:
        return None
    words = f"Ranks on {host} use {len(used)} of {count(expected, 'adapter')}, {', '.join(used)}"
    chosen = record.settings.get("NCCL_IB_HCA")
    why = f"Remove NCCL_IB_HCA={chosen} from the environment" if chosen else f"Check which are up with `ibstat` on {host}"
    advice = f"{why}. If the node has no more, correct `fabric.adapters_per_node` of the profile."
    return TransportFault(words, advice, 1 - len(used) / expected)


def gdr_fault(network: RunNetwork, gpu: str | None) -> TransportFault | None:
    """Adapters that do not read and write GPUs' memory themselves, though they could: the driver of one refuses, or NCCL passes
    over one near a GPU. A distance that NCCL holds to be too far is no fault."""
    record = network.transport
    if record.is_tcp or record.uses_gdr is not False or not _has_rdma(network) or len(record.nodes) < 2:
        return None
    if gpu is None or any(name in gpu.lower() for name in NO_GDR):
        return None
    connections = count(record.network_connections, "connection")
    words = f"None of {connections} between nodes uses GPUDirect RDMA: {transport_words(record)}"
    if record.gdr_off:
        off = f"It is off for {', '.join(record.gdr_off[:8])}"
        advice = f"Ask the site for nvidia-peermem on the nodes (`{PEER_MODULE}`)"
        return TransportFault(f"{words}. {off}", f"{advice}. NCCL up to 2.22 does not find every version of it.")
    level, near = record.settings.get("NCCL_NET_GDR_LEVEL"), ". The profile has GPUs next to adapters" if network.near else ""
    if level:
        return TransportFault(f"{words}{near}", f"Remove NCCL_NET_GDR_LEVEL={level} from the environment.")
    compare = "Compare `nvidia-smi topo -m` on a node with the profile."
    return TransportFault(f"{words}{near}", compare) if near else None


def _has_rdma(network: RunNetwork) -> bool:
    protocol, name = network.fabric.protocol, (network.fabric.name or "").lower()
    return any(word in name for word in RDMA_FABRICS) if protocol is None else protocol == "rdma"


def _tcp_advice(network: RunNetwork) -> str:
    settings, remarks = network.transport.settings, " ".join(network.transport.remarks)
    if settings.get("NCCL_IB_DISABLE") == "1":
        return "Remove NCCL_IB_DISABLE=1 from the environment."
    if "Socket" in settings.get("NCCL_NET", ""):
        return "Remove NCCL_NET=Socket from the environment."
    if "libibverbs" in remarks:
        return "Add libibverbs (rdma-core) to the environment or the container. NCCL did not find it."
    if "slingshot" in (network.fabric.name or "").lower():
        return "Load the site's libfabric plug-in. `NCCL_NET: AWS Libfabric` in `env_rules` of the profile refuses TCP."
    return "Check on a node whether adapters are up (`ibstat`), and in a container whether /dev/infiniband exists."


def transport_verdict(judge: Callable[[Run, RunNetwork], TransportFault | None], weight: float, case: Case) -> Iterator[Verdict]:
    """Of runs between nodes: the worst fault that `judge` finds."""
    judged = [(run, judge(run, run.network)) for run in case.counting if run.network and len(run.network.transport.nodes) > 1]
    found = [(run, fault) for run, fault in judged if fault is not None]
    if not found:
        return
    first, fault = max(found, key=lambda each: each[1].share)
    yield Verdict(
        where=f"in {len(found)} of {count(len(judged), 'run')} on several nodes",
        evidence=f"{fault.evidence} ({first.name}).",
        todo=fault.advice,
        numbers={"runs": len(found), "of": len(judged)},
        runs=context.run_names([run for run, _ in found]),
        weight=LIMITED + weight,
    )
