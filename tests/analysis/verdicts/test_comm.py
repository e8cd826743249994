"""Exchanges that hold a point back; what NCCL's log says against a network: nothing on sound clusters, else the one fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcddp.analysis.runs.communication import RunNetwork, read_network
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.comm import adapter_fault, gdr_fault, tcp_fault
from hpcddp.analysis.verdicts.findings import find
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.launch_record import FabricFacts, LaunchRecord
from hpcddp.core.records import write_json
from hpcddp.core.schema import encode
from hpcddp.core.transport_record import RankTransport, TransportRecord, merged
from hpcddp.worker.comm.nccl_log import parse_log
from tests.analysis.synthetic import MS, Bucket, Recorded, point, write_run, write_study


def test_exchanges_are_those_of_one_run(tmp_path: Path) -> None:
    """Ten of 40 kB, whether the point has runs with the hook under one label or, with a trace, under a second."""
    one, plain, traced = point(1, 1), point(1, 2, comm="on"), point(1, 2, comm="on", profile_steps=5)
    study = write_study(tmp_path / "s", [one, plain, traced])
    shares = {"forward": 0.3, "backward": 0.48, "comm_exposed": 0.12, "optimizer": 0.1}
    buckets = [Bucket(size_bytes=40_000, ready_ns=(30 + 5 * index) * MS, done_ns=90 * MS) for index in range(10)]
    for each in (one, plain, traced):
        write_run(study, each, Recorded(step_ns=100 * MS, steps=20, shares=shares, buckets=buckets if each is not one else ()))
    (verdict,) = [each for each in find(load_study(study)).verdicts if each.name == "latency-bound"]
    assert "has 10 all-reduces of 39.1 KiB on average" in verdict.evidence


def test_gradients_that_travel_by_hand_are_for_ddp_to_send(tmp_path: Path) -> None:
    """Neither a hook nor another bucket helps there, and both would be refused."""
    points = {point(1, 1): 0.0, point(1, 2, parallel="all_reduce"): 0.3}
    study = write_study(tmp_path / "s", list(points))
    for each, exposed in points.items():
        shares = {"forward": 0.3, "backward": 0.4, "comm_exposed": exposed}
        write_run(study, each, Recorded(step_ns=100 * MS, steps=20, shares=shares))
    (verdict,) = [each for each in find(load_study(study)).verdicts if each.name == "communication-bound"]
    assert "--set workload.parallel=ddp" in verdict.advice


LOGS = Path(__file__).parents[2] / "worker/nccl_logs"
FRAME = "n1:1:2 [0] NCCL INFO"


@dataclass(frozen=True)
class Case:
    """Two nodes of a cluster: what NCCL says on each, and what the profile has."""

    said: RankTransport
    fabric: FabricFacts
    gpu: str = "NVIDIA A100-SXM4-40GB"
    full_nodes: bool | None = True
    near: bool | None = None

    def faults(self, nodes: int = 2) -> dict[str, str]:
        """Name -> what is said."""
        record = merged(1, [(f"n{node}", self.said) for node in range(nodes)])
        network = RunNetwork(transport=record, fabric=self.fabric, full_nodes=self.full_nodes, near=self.near)
        found = {"tcp": tcp_fault(network), "adapters": adapter_fault(network), "gdr": gdr_fault(network, self.gpu)}
        return {name: f"{fault.evidence} {fault.advice}" for name, fault in found.items() if fault}


def infiniband(adapters: int, gdr: str = "/GDRDMA", said: str = "", link: str = "IB") -> RankTransport:
    """As NCCL's source writes it: all adapters found, a connection over each."""
    devices = " ".join(f"[{number}]mlx5_{number}:1/{link}" for number in range(adapters))
    return lines(
        f"NET/IB : Using {devices} [RO]; OOB ib0:10.0.0.1<0>",
        "Using network IB",
        said,
        *(f"Channel 0{n}/0 : {n}[{n}] -> {n + 4}[{n}] [send] via NET/IB/{n}{gdr}" for n in range(adapters)),
    )


def slingshot() -> RankTransport:
    sends = (f"Channel 0{n}/0 : {n}[{n}] -> {n + 4}[{n}] [send] via NET/AWS Libfabric/{n}/GDRDMA" for n in range(4))
    return lines("NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)", "Using network AWS Libfabric", *sends)


def lines(*said: str) -> RankTransport:
    return parse_log("\n".join(f"{FRAME} {line}" for line in said))


def fabric(cluster: str) -> FabricFacts:
    found = load_profile(cluster).fabric
    return FabricFacts(name=found.name, protocol=found.protocol, adapters_per_node=found.adapters_per_node)


def posted(log: str) -> RankTransport:
    return parse_log((LOGS / f"{log}.log").read_text(encoding="utf-8"))


JUWELS, MARCONI = fabric("juwels-booster"), fabric("marconi100")
GH200 = "NVIDIA GH200 120GB"

SOUND: Mapping[str, Case] = {
    "juwels-booster": Case(infiniband(4), JUWELS),
    "leonardo": Case(infiniband(4), fabric("leonardo")),
    "vista, too far for GPUDirect by NCCL's own choice": Case(infiniband(1, gdr=""), fabric("vista"), GH200),
    "marconi100 on one GPU a node": Case(infiniband(1), MARCONI, full_nodes=False),
    "rcc, whose profile has no adapters": Case(infiniband(2, link="RoCE"), fabric("rcc")),
    "alps": Case(slingshot(), fabric("alps"), GH200),
    "perlmutter": Case(slingshot(), fabric("perlmutter")),
    "aws-g5 by TCP": Case(posted("nccl-2.19.3-socket"), fabric("aws-g5"), "NVIDIA A10G"),
    "more adapters than the profile has": Case(posted("nccl-2.21.5-sharp"), JUWELS),
    "EFA": Case(posted("nccl-2.27.3-efa"), FabricFacts(name="EFA", protocol="rdma", adapters_per_node=1)),
    "half of the connections, as before Ampere": Case(
        dataclasses.replace(infiniband(2), gdr_connections=1), MARCONI, "Tesla V100-SXM2-16GB"
    ),
    "nothing said": Case(RankTransport(), JUWELS),
}

OFF = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
FAR = "NCCL_NET_GDR_LEVEL set by environment to LOC"
NO_IB = lines("NCCL_IB_DISABLE set by environment to 1.", "Using network Socket")
OFI_TCP = lines("NET/OFI Selected provider is tcp, fabric is 10.0.0.0/8 (found 1 nics)")

PLANTED: Mapping[str, tuple[Case, str, Sequence[str]]] = {
    "TCP on InfiniBand": (
        Case(posted("nccl-2.19.3-socket"), JUWELS),
        "tcp",
        ["over TCP (Socket)", "NET/IB : No device found", "ibstat"],
    ),
    "TCP on RoCE": (Case(posted("no-libibverbs"), fabric("rcc")), "tcp", ["RoCEv2", "rdma-core"]),
    "TCP on Slingshot": (
        Case(posted("rccl-socket-on-slingshot"), fabric("lumi-g"), "AMD Instinct MI250X"),
        "tcp",
        ["HPE Slingshot 11", "NCCL_NET: AWS Libfabric"],
    ),
    "libfabric's tcp": (Case(OFI_TCP, fabric("perlmutter")), "tcp", ["TCP (tcp)"]),
    "InfiniBand switched off": (Case(NO_IB, fabric("leonardo")), "tcp", ["Remove NCCL_IB_DISABLE=1"]),
    "an adapter is down": (
        Case(infiniband(3), JUWELS),
        "adapters",
        ["Ranks on n0 use 3 of 4 adapters, mlx5_0, mlx5_1, mlx5_2", "`ibstat` on n0", "fabric.adapters_per_node"],
    ),
    "adapters left out by hand": (
        Case(infiniband(1, said="NCCL_IB_HCA set to mlx5_0"), fabric("jupiter")),
        "adapters",
        ["1 of 4 adapters", "Remove NCCL_IB_HCA=mlx5_0"],
    ),
    "peermem is not loaded": (
        Case(infiniband(4, gdr="", said=OFF), JUWELS),
        "gdr",
        ["None of 8 connections", "It is off for mlx5_0", "lsmod | grep peermem"],
    ),
    "told to keep its distance": (Case(infiniband(4, gdr="", said=FAR), JUWELS), "gdr", ["Remove NCCL_NET_GDR_LEVEL=LOC"]),
    "next to each other, and not used": (
        Case(infiniband(4, gdr=""), JUWELS, near=True),
        "gdr",
        ["The profile has GPUs next to adapters", "nvidia-smi topo -m"],
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_networks_have_no_fault(name: str) -> None:
    assert SOUND[name].faults() == {}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_fault_is_found_and_no_other(name: str) -> None:
    case, expected, words = PLANTED[name]
    found = case.faults()
    assert list(found) == [expected]
    assert all(word in found[expected] for word in words), found
    assert case.faults(nodes=1) == {}


def test_a_consumer_gpu_has_no_gpudirect_to_miss() -> None:
    case, _, _ = PLANTED["peermem is not loaded"]
    assert dataclasses.replace(case, gpu="NVIDIA GeForce RTX 4090").faults() == {}


def test_the_profile_says_what_is_near(tmp_path: Path) -> None:
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
