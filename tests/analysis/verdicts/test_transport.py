"""What NCCL's log says against a network: nothing on ten sound clusters, and on each with one thing wrong exactly that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcddp.analysis.runs.communication import RunNetwork, read_network
from hpcddp.analysis.verdicts.transport import adapter_fault, gdr_fault, tcp_fault
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.launch_record import FabricFacts, LaunchRecord
from hpcddp.core.records import write_json
from hpcddp.core.schema import encode
from hpcddp.core.transport_record import RankTransport, TransportRecord, merged
from hpcddp.worker.comm.nccl_log import parse_log

LOGS = Path(__file__).parents[2] / "worker/nccl_logs"
FRAME = "n1:1:2 [0] NCCL INFO"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two nodes of a cluster: what NCCL says on each, and what the profile has."""

    said: RankTransport
    fabric: FabricFacts
    gpu: str = "NVIDIA A100-SXM4-40GB"
    full_nodes: bool | None = True
    near: bool | None = None

    def network(self, nodes: int = 2) -> RunNetwork:
        record = merged(1, [(f"n{node}", self.said) for node in range(nodes)])
        return RunNetwork(transport=record, fabric=self.fabric, full_nodes=self.full_nodes, near=self.near)

    def faults(self, nodes: int = 2) -> set[str]:
        network = self.network(nodes)
        found = {"tcp": tcp_fault(network), "adapters": adapter_fault(network), "gdr": gdr_fault(network, self.gpu)}
        return {name for name, fault in found.items() if fault}


def infiniband(adapters: int, gdr: str = "/GDRDMA", said: str = "", link: str = "IB") -> RankTransport:
    """As NCCL's source writes it: all adapters found, a connection over each."""
    devices = " ".join(f"[{number}]mlx5_{number}:1/{link}" for number in range(adapters))
    lines = [f"{FRAME} NET/IB : Using {devices} [RO]; OOB ib0:10.0.0.1<0>", f"{FRAME} Using network IB", said]
    lines += [f"{FRAME} Channel 0{n}/0 : {n}[{n}] -> {n + 4}[{n}] [send] via NET/IB/{n}{gdr}" for n in range(adapters)]
    return parse_log("\n".join(lines))


def slingshot(nics: int, gdr: str = "/GDRDMA") -> RankTransport:
    lines = [
        f"{FRAME} NET/OFI Selected provider is cxi, fabric is cxi (found {nics} nics)",
        f"{FRAME} Using network AWS Libfabric",
    ]
    lines += [f"{FRAME} Channel 0{n}/0 : {n}[{n}] -> {n + 4}[{n}] [send] via NET/AWS Libfabric/{n}{gdr}" for n in range(nics)]
    return parse_log("\n".join(lines))


def fabric_of(cluster: str) -> FabricFacts:
    found = load_profile(cluster).fabric
    return FabricFacts(name=found.name, protocol=found.protocol, adapters_per_node=found.adapters_per_node)


def posted(log: str) -> RankTransport:
    return parse_log((LOGS / f"{log}.log").read_text(encoding="utf-8"))


SOUND: Mapping[str, Case] = {
    "juwels-booster": Case(said=infiniband(4), fabric=fabric_of("juwels-booster")),
    "leonardo": Case(said=infiniband(4), fabric=fabric_of("leonardo")),
    "vista, too far for GPUDirect by NCCL's own choice": Case(
        said=infiniband(1, gdr=""), fabric=fabric_of("vista"), gpu="NVIDIA GH200 120GB"
    ),
    "marconi100 on one GPU a node": Case(said=infiniband(1), fabric=fabric_of("marconi100"), full_nodes=False),
    "rcc, whose profile has no adapters": Case(said=infiniband(2, link="RoCE"), fabric=fabric_of("rcc")),
    "alps": Case(said=slingshot(4), fabric=fabric_of("alps"), gpu="NVIDIA GH200 120GB"),
    "perlmutter": Case(said=slingshot(4), fabric=fabric_of("perlmutter")),
    "aws-g5 by TCP": Case(said=posted("nccl-2.19.3-socket"), fabric=fabric_of("aws-g5"), gpu="NVIDIA A10G"),
    "more adapters than the profile has": Case(said=posted("nccl-2.21.5-sharp"), fabric=fabric_of("juwels-booster")),
    "EFA": Case(said=posted("nccl-2.27.3-efa"), fabric=FabricFacts(name="EFA", protocol="rdma", adapters_per_node=1)),
    "half of the connections, as before Ampere": Case(
        said=dataclasses.replace(infiniband(2), gdr_connections=1), fabric=fabric_of("marconi100"), gpu="Tesla V100-SXM2-16GB"
    ),
    "nothing said": Case(said=RankTransport(), fabric=fabric_of("juwels-booster")),
}

OFF = f"{FRAME} NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
FAR = f"{FRAME} NCCL_NET_GDR_LEVEL set by environment to LOC"

PLANTED: Mapping[str, tuple[Case, set[str], Sequence[str]]] = {
    "TCP on InfiniBand": (
        Case(said=posted("nccl-2.19.3-socket"), fabric=fabric_of("juwels-booster")),
        {"tcp"},
        ["over TCP (Socket)", "NET/IB : No device found", "ibstat"],
    ),
    "TCP on RoCE": (Case(said=posted("no-libibverbs"), fabric=fabric_of("rcc")), {"tcp"}, ["RoCEv2", "rdma-core"]),
    "TCP on Slingshot": (
        Case(said=posted("rccl-socket-on-slingshot"), fabric=fabric_of("lumi-g"), gpu="AMD Instinct MI250X"),
        {"tcp"},
        ["HPE Slingshot 11", "NCCL_NET: AWS Libfabric"],
    ),
    "libfabric's tcp": (
        Case(
            said=parse_log(f"{FRAME} NET/OFI Selected provider is tcp, fabric is 10.0.0.0/8 (found 1 nics)"),
            fabric=fabric_of("perlmutter"),
        ),
        {"tcp"},
        ["TCP (tcp)"],
    ),
    "InfiniBand switched off": (
        Case(
            said=parse_log(f"{FRAME} NCCL_IB_DISABLE set by environment to 1.\n{FRAME} Using network Socket"),
            fabric=fabric_of("leonardo"),
        ),
        {"tcp"},
        ["NCCL_IB_DISABLE is 1: leave it out"],
    ),
    "an adapter is down": (
        Case(said=infiniband(3), fabric=fabric_of("juwels-booster")),
        {"adapters"},
        ["3 of 4 adapters in use on n0 (mlx5_0, mlx5_1, mlx5_2)", "`ibstat` on n0", "fabric.adapters_per_node"],
    ),
    "adapters left out by hand": (
        Case(said=infiniband(1, said=f"{FRAME} NCCL_IB_HCA set to mlx5_0"), fabric=fabric_of("jupiter")),
        {"adapters"},
        ["1 of 4 adapters", "NCCL_IB_HCA is mlx5_0: leave it out"],
    ),
    "peermem is not loaded": (
        Case(said=infiniband(4, gdr="", said=OFF), fabric=fabric_of("juwels-booster")),
        {"gdr"},
        ["none of 8 connections", "it is off for mlx5_0", "lsmod | grep peermem"],
    ),
    "told to keep its distance": (
        Case(said=infiniband(4, gdr="", said=FAR), fabric=fabric_of("juwels-booster")),
        {"gdr"},
        ["NCCL_NET_GDR_LEVEL is LOC: leave it out"],
    ),
    "next to each other, and not used": (
        Case(said=infiniband(4, gdr=""), fabric=fabric_of("juwels-booster"), near=True),
        {"gdr"},
        ["the profile has GPUs next to adapters", "nvidia-smi topo -m"],
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_networks_have_no_fault(name: str) -> None:
    assert SOUND[name].faults() == set()


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_fault_is_found_and_no_other(name: str) -> None:
    case, expected, words = PLANTED[name]
    network = case.network()
    assert case.faults() == expected
    found = next(filter(None, (tcp_fault(network), adapter_fault(network), gdr_fault(network, case.gpu))))
    assert all(word in f"{found.evidence} {found.advice}" for word in words), found
    assert case.faults(nodes=1) == set()


def test_a_consumer_gpu_has_no_gpudirect_to_miss() -> None:
    case, _, _ = PLANTED["peermem is not loaded"]
    assert dataclasses.replace(case, gpu="NVIDIA GeForce RTX 4090").faults() == set()


def test_the_profile_says_what_is_near(tmp_path: Path) -> None:
    """From the matrix of `nvidia-smi topo -m`, of the point's node type; a damaged record is none."""
    topology = {"GPU0": ["X", "NV4", "PXB"], "GPU1": ["NV4", "X", "SYS"], "mlx5_0": ["PXB", "SYS", "X"]}
    profile = {
        "fabric": {"name": "InfiniBand", "adapters_per_node": 1},
        "node_types": {"main": {"gpus": 2, "links": {"topology": topology}}},
        "default_node_type": "main",
    }
    launch = LaunchRecord(schema=1, point="x", ranks=4, ranks_per_node=2, gpus=("A100",), env_id="e", profile=profile)
    assert read_network(tmp_path, None, launch) is None
    write_json(tmp_path / "transport.json", encode(TransportRecord(schema=1, library="NCCL", networks=("IB",))))
    found = read_network(tmp_path, None, launch)
    assert found is not None
    assert (found.near, found.full_nodes, found.fabric.adapters_per_node) == (True, True, 1)
    (tmp_path / "transport.json").write_text('{"schema": 1, "library": 3}')
    assert read_network(tmp_path, None, launch) is None
