"""What NCCL's own log says against the network a run used: TCP where there is RDMA, fewer adapters, no GPUDirect RDMA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcddp.analysis.runs.communication import RunNetwork
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.context import LIMITED, Case, Verdict, run_names
from hpcddp.core.text import count
from hpcddp.core.transport_record import transport_words

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


def tcp_instead_of_rdma(case: Case) -> Iterator[Verdict]:
    """Data between nodes went over plain TCP, on a cluster whose fabric has RDMA."""
    yield from _verdicts(case, lambda run, network: tcp_fault(network), OF_TCP)


def idle_adapters(case: Case) -> Iterator[Verdict]:
    """Fewer adapters of a node were in use than its profile has."""
    yield from _verdicts(case, lambda run, network: adapter_fault(network), OF_ADAPTERS)


def no_gpudirect(case: Case) -> Iterator[Verdict]:
    """Adapters did not read and write GPUs' memory themselves, though they could."""
    yield from _verdicts(case, lambda run, network: gdr_fault(network, run.gpu), OF_GDR)


def tcp_fault(network: RunNetwork) -> TransportFault | None:
    """Any TCP counts: NCCL takes it only where it found nothing else, or was told to."""
    record = network.transport
    if not record.is_tcp or not _has_rdma(network) or len(record.nodes) < 2:
        return None
    remarks = f" ({'; '.join(record.remarks)})" if record.remarks else ""
    return TransportFault(
        f"{transport_words(record)}, and the profile's network is {network.fabric.name or 'RDMA'}{remarks}", _tcp_advice(network)
    )


def adapter_fault(network: RunNetwork) -> TransportFault | None:
    """One adapter that is missing is one too few: each is an equal share of the node's bandwidth."""
    record, expected = network.transport, network.fabric.adapters_per_node
    fewest = record.fewest_adapters
    if record.is_tcp or len(record.nodes) < 2 or not expected or not fewest or network.full_nodes is not True:
        return None
    host, used = fewest
    if len(used) >= expected:
        return None
    words = f"{len(used)} of {count(expected, 'adapter')} in use on {host} ({', '.join(used)})"
    chosen = record.settings.get("NCCL_IB_HCA")
    why = f"NCCL_IB_HCA is {chosen}: leave it out" if chosen else f"see which are up, `ibstat` on {host}"
    advice = f"{why}; if the node has no more, correct `fabric.adapters_per_node` of the profile"
    return TransportFault(words, advice, 1 - len(used) / expected)


def gdr_fault(network: RunNetwork, gpu: str | None) -> TransportFault | None:
    """Only where it could be: an adapter whose driver refuses, or one near a GPU that NCCL passes over. A distance that NCCL
    holds to be too far is no fault.
    """
    record = network.transport
    if record.is_tcp or record.uses_gdr is not False or not _has_rdma(network) or len(record.nodes) < 2:
        return None
    if gpu is None or any(name in gpu.lower() for name in NO_GDR):
        return None
    words = f"none of {count(record.network_connections, 'connection')} between nodes; {transport_words(record)}"
    if record.gdr_off:
        off = f"it is off for {', '.join(record.gdr_off[:8])}"
        advice = f"ask the site for nvidia-peermem on the nodes (`{PEER_MODULE}`)"
        return TransportFault(f"{words}; {off}", f"{advice}; NCCL up to 2.22 does not find every version of it")
    level = record.settings.get("NCCL_NET_GDR_LEVEL")
    if level or network.near:
        why = (
            f"NCCL_NET_GDR_LEVEL is {level}: leave it out" if level else "compare `nvidia-smi topo -m` on a node with the profile"
        )
        near = "; the profile has GPUs next to adapters" if network.near else ""
        return TransportFault(f"{words}{near}", why)
    return None


def _has_rdma(network: RunNetwork) -> bool:
    fabric = network.fabric
    if fabric.protocol is not None:
        return fabric.protocol == "rdma"
    return any(word in (fabric.name or "").lower() for word in RDMA_FABRICS)


def _tcp_advice(network: RunNetwork) -> str:
    settings, remarks = network.transport.settings, " ".join(network.transport.remarks)
    if settings.get("NCCL_IB_DISABLE") == "1":
        return "NCCL_IB_DISABLE is 1: leave it out"
    if "Socket" in settings.get("NCCL_NET", ""):
        return "NCCL_NET is Socket: leave it out"
    if "libibverbs" in remarks:
        return "NCCL did not find libibverbs: add it to the environment or the container (rdma-core)"
    if "slingshot" in (network.fabric.name or "").lower():
        return "load the site's libfabric plug-in; `NCCL_NET: AWS Libfabric` in `env_rules` of the profile refuses TCP"
    return "see on a node whether adapters are up (`ibstat`), and in a container whether it has /dev/infiniband"


def _verdicts(case: Case, judge: Callable[[Run, RunNetwork], TransportFault | None], weight: float) -> Iterator[Verdict]:
    judged = [(run, judge(run, run.network)) for run in case.counting if run.network and len(run.network.transport.nodes) > 1]
    found = [(run, fault) for run, fault in judged if fault is not None]
    if not found:
        return
    first, fault = max(found, key=lambda each: each[1].share)
    yield Verdict(
        where=f"in {len(found)} of {count(len(judged), 'run')} on several nodes",
        evidence=f"{fault.evidence} ({first.name})",
        todo=fault.advice,
        numbers={"runs": len(found), "of": len(judged)},
        runs=run_names([run for run, _ in found]),
        weight=LIMITED + weight,
    )
