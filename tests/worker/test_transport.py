"""Which network a job is on: from a library's log during the first collective, and from logs that people posted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpcddp.core.schema import decode_record
from hpcddp.core.transport_record import RankTransport, TransportRecord, merged, transport_words
from hpcddp.worker.comm import transport
from hpcddp.worker.comm.nccl_log import parse_log
from hpcddp.worker.comm.transport import gloo_interface
from hpcddp.worker.rendezvous import ProcessGroup
from tests.worker import forked

LOGS = Path(__file__).parent / "nccl_logs"


def _first_collective(text: str, variables: dict[str, str]) -> Any:
    """An all-reduce of a library that says so much in its log, where its variables ask for one."""

    def all_reduce(_: torch.Tensor) -> None:
        found = {name: value for name, value in os.environ.items() if name.startswith("NCCL_DEBUG")}
        variables.update(found)
        if found.get("NCCL_DEBUG") == "INFO":
            Path(found["NCCL_DEBUG_FILE"]).write_text(text, encoding="utf-8")

    return all_reduce


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("NCCL_DEBUG")]:
        monkeypatch.delenv(name)


def test_the_log_is_read_and_leaves_nothing(own_folder: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only subsystems that later collectives have nothing to say in; no variable and no file stays."""
    text, variables = (LOGS / "nccl-2.27.3-efa.log").read_text(encoding="utf-8"), dict[str, str]()
    monkeypatch.setattr(dist, "all_reduce", _first_collective(text, variables))
    assert transport.first_collective(torch.device("cpu")) == parse_log(text)
    assert (variables["NCCL_DEBUG"], variables["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET,ENV")
    assert not [name for name in os.environ if name.startswith("NCCL_DEBUG")]
    assert list(tmp_path.iterdir()) == []


def test_a_collective_that_fails_shows_its_warnings(
    own_folder: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    warning = "net.cc:626 NCCL WARN Error: network AWS Libfabric not found."

    def fails(_: torch.Tensor) -> None:
        Path(os.environ["NCCL_DEBUG_FILE"]).write_text(f"h:1:1 [0] NCCL INFO cudaDriverVersion 13000\nh:1:1 [0] {warning}\n")
        raise RuntimeError("NCCL error")

    monkeypatch.setattr(dist, "all_reduce", fails)
    with pytest.raises(RuntimeError, match="NCCL error"):
        transport.first_collective(torch.device("cpu"))
    shown = capfd.readouterr().err
    assert warning in shown
    assert "cudaDriverVersion" not in shown
    assert not [name for name in os.environ if name.startswith("NCCL_DEBUG")]
    assert list(tmp_path.iterdir()) == []


def test_a_scripts_log_is_read_when_it_measures(own_folder: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (LOGS / "nccl-2.27.3-efa.log").read_text(encoding="utf-8")
    monkeypatch.setattr(dist, "all_reduce", lambda _: None)
    with transport.logging_script("cuda"):
        Path(os.environ["NCCL_DEBUG_FILE"]).write_text(text, encoding="utf-8")
        os.environ["NCCL_DEBUG_SUBSYS"] = "COLL"
        assert transport.first_collective(torch.device("cpu")) == parse_log(text)
        assert [name for name in os.environ if name.startswith("NCCL_DEBUG")] == ["NCCL_DEBUG_SUBSYS"]
    assert list(tmp_path.iterdir()) == []
    with transport.logging_script("cuda"):  # the script's own choice
        assert "NCCL_DEBUG" not in os.environ
    del os.environ["NCCL_DEBUG_SUBSYS"]
    with transport.logging_script("cpu"):
        assert "NCCL_DEBUG" not in os.environ


def test_a_users_own_log_wins(tmp_path: Path) -> None:
    own = tmp_path / "nccl.conf"
    own.write_text("#NCCL_DEBUG=WARN\nNCCL_IB_HCA=mlx5_0\n")
    assert transport.where_logged({"NCCL_IB_HCA": "mlx5_0"}, [str(own), str(tmp_path / "none")]) is None
    assert transport.where_logged({"NCCL_DEBUG": "WARN"}, []) == "NCCL_DEBUG"
    assert transport.where_logged({"NCCL_DEBUG_FILE": "/tmp/x"}, []) == "NCCL_DEBUG_FILE"
    own.write_text("NCCL_IB_HCA=mlx5_0\nNCCL_DEBUG=WARN\n")
    assert transport.where_logged({}, [str(own)]) == str(own)
    assert transport.where_logged({"NCCL_CONF_FILE": str(own)}, []) == str(own)


def _record_with_gloo(group: ProcessGroup, folder: Path) -> None:
    transport.record_transport(group, folder)


def test_ranks_of_gloo_record_their_interface(tmp_path: Path) -> None:
    forked.in_group(tmp_path / "ranks", 2, _record_with_gloo, tmp_path)
    record = decode_record(TransportRecord, json.loads((tmp_path / "transport.json").read_text(encoding="utf-8")))
    assert record.library == "gloo"
    assert record.nodes
    assert transport_words(record).startswith("gloo over ")


def test_glooss_interface_is_the_named_one() -> None:
    assert gloo_interface({"GLOO_SOCKET_IFNAME": "ib0,ib1"}) == ("ib0", "ib1")


@pytest.mark.parametrize(
    ("log", "hosts", "words"),
    [
        ("nccl-2.19.3-socket", "ab", "NCCL 2.19.3 over TCP (Socket), 1 adapter a node (ens7)"),
        ("nccl-2.20.5-merged", "ab", "NCCL 2.20.5 over RoCE (IB), 2 adapters a node (mlx5_7, mlx5_6)"),
        ("nccl-2.27.3-efa", "ab", "NCCL 2.27.3 over libfabric's efa, 1 adapter a node (0), GPUDirect RDMA"),
        ("nccl-2.28.3-cxi", "ab", "NCCL 2.28.3 over libfabric's cxi, GPUDirect RDMA"),
        ("nccl-2.30.3-ib", "a", "NCCL 2.30.3 within the node: SHM"),
    ],
)
def test_the_line_that_says_it(log: str, hosts: str, words: str) -> None:
    own = parse_log((LOGS / f"{log}.log").read_text(encoding="utf-8"))
    assert transport_words(merged(1, [(host, own) for host in hosts])) == words


def test_ranks_are_merged_by_node() -> None:
    left = RankTransport(adapters=("a", "b"), used=("a",), network_connections=2, gdr_connections=2, gdr=False, channels=2)
    right = RankTransport(adapters=("a", "b"), used=("b",), network_connections=2, version="2.28.9", channels=4)
    record = merged(1, [("n1", left), ("n1", right), ("n2", left), ("n2", left)])
    assert record.nodes["n1"].used == ("a", "b")
    assert record.fewest_adapters == ("n2", ("a",))
    assert (record.network_connections, record.gdr_connections, record.channels, record.version) == (8, 6, 4, "2.28.9")
    assert "GPUDirect RDMA on 6 of 8 connections" in transport_words(record)


LOGS = Path(__file__).parent / "nccl_logs"

NO_DEVICE, NO_VERBS = "NET/IB : No device found", "Failed to open libibverbs.so[.1]"

SAID: dict[str, dict[str, Any]] = {
    "nccl-2.18.5-roce": {
        "version": "2.18.5",
        "network": "IB",
        "adapters": ("mlx5_4",),
        "links": ("RoCE",),
        "settings": {"NCCL_IB_HCA": "mlx5_4"},
    },
    "nccl-2.19.3-roce": {"version": "2.19.3", "network": "IB", "adapters": ("mlx5_10", "mlx5_11"), "links": ("RoCE",)},
    "nccl-2.19.3-socket": {
        "version": "2.19.3",
        "network": "Socket",
        "adapters": ("ens7",),
        "remarks": (NO_DEVICE,),
    },
    "nccl-2.20.5-merged": {"version": "2.20.5", "network": "IB", "adapters": ("mlx5_7", "mlx5_6"), "links": ("RoCE",)},
    "nccl-2.21.5-sharp": {
        "version": "2.21.5",
        "network": "IBext_v8",
        "adapters": ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5", "mlx5_2"),
        "links": ("IB", "RoCE"),
    },
    "nccl-2.22.3-roce": {
        "network": "IBext_v8",
        "adapters": tuple(f"mlx5_{number}" for number in range(8)),
        "in_node": {"P2P/CUMEM": 2},
    },
    "nccl-2.22-ib-without-gdr": {
        "network": "IB",
        "used": ("3",),
        "network_connections": 2,
        "gdr_connections": 0,
        "in_node": {"P2P/direct pointer": 2},
    },
    "nccl-2.22-gdr-disabled": {"network": "IB", "adapters": ("mlx5_0", "mlx5_1"), "gdr_off": ("mlx5_0", "mlx5_1")},
    "nccl-2.24-or-later-in-node": {"network": None, "gdr": True, "in_node": {"P2P/direct pointer": 2}},
    "nccl-2.25.1-socket": {"version": "2.25.1", "network": "Socket", "adapters": ("enp227s0f0", "enxfe1dc2e063ea")},
    "nccl-2.25.1-ib": {"version": "2.25.1", "network": "IB", "adapters": ("mlx5_0",), "links": ("IB",)},
    "nccl-2.26.2-socket": {"version": "2.26.2", "network": "Socket", "adapters": ("eno1",), "links": ()},
    "nccl-2.26.2-efa": {"version": "2.26.2"},
    "nccl-2.27.3-efa": {
        "version": "2.27.3",
        "network": "Libfabric",
        "provider": "efa",
        "network_connections": 4,
        "gdr_connections": 4,
        "gdr": False,
        "channels": 2,
    },
    "nccl-2.28.3-cxi": {
        "version": "2.28.3",
        "network": "AWS Libfabric",
        "provider": "cxi",
        "gdr": True,
        "in_node": {"P2P/CUMEM": 3},
        "settings": {"NCCL_CROSS_NIC": "1", "NCCL_PROTO": "Simple"},
    },
    "nccl-2.27.5-socket": {"version": "2.27.5", "adapters": (), "remarks": ("no network plug-in was found", NO_DEVICE)},
    "nccl-2.28.9-version": {"version": "2.28.9"},
    "nccl-2.29.7-no-ibverbs": {
        "version": "2.29.7",
        "network": "Socket",
        "adapters": ("eth0",),
        "remarks": ("no network plug-in was found", NO_VERBS, "Failed to initialize NET plugin IB"),
    },
    "ibext-v10-gb10": {"network": "IBext_v10", "used": ("0", "1"), "network_connections": 2, "gdr_connections": 0},
    "nccl-2.30.3-ib": {"version": "2.30.3", "network": "IB", "in_node": {"SHM": 2}, "settings": {"NCCL_SHM_DISABLE": "1"}},
    "ibext-gdr": {"network": "IBext_v8", "used": ("0", "3"), "network_connections": 4, "gdr_connections": 4},
    "nccl-socket-4-interfaces": {"network": "Socket", "used": ("3",), "in_node": {"P2P/IPC": 1}},
    "nccl-old-gdr": {"network": "IB", "used": ("2", "5"), "gdr_connections": 2},
    "no-libibverbs": {"network": "Socket", "adapters": ("ens5",), "remarks": (NO_VERBS,)},
    "ofi-cxi-1.6": {"network": "AWS Libfabric", "provider": "cxi"},
    "ofi-efa-1.3": {"version": "2.10.3", "network": "AWS Libfabric", "provider": "efa"},
    "rccl-2.21.5-socket": {"library": "RCCL", "version": "2.21.5"},
    "rccl-socket-on-slingshot": {
        "network": "Socket",
        "used": ("1", "2"),
        "network_connections": 2,
        "gdr_connections": 0,
        "in_node": {"P2P/IPC": 1},
    },
    "gdr-with-level": {"used": ("0", "4", "6"), "gdr_connections": 4, "settings": {"NCCL_NET_GDR_LEVEL": "SYS"}},
}
"""File -> what is read of it."""


@pytest.mark.parametrize("name", SAID)
def test_what_a_posted_log_says(name: str) -> None:
    found = parse_log((LOGS / f"{name}.log").read_text(encoding="utf-8"))
    assert {key: getattr(found, key) for key in SAID[name]} == SAID[name]


def test_every_log_is_read_and_names_its_page() -> None:
    files = sorted(LOGS.iterdir())
    assert {file.stem for file in files} == set(SAID)
    assert all(file.read_text(encoding="utf-8").startswith("# https://") for file in files)


def test_adapters_in_forms_that_nobody_posted() -> None:
    """As NCCL's source writes them: of 2.20 merged ones beside others, of 2.26 virtual ones, of 2.30.7 with rail and plane."""
    merged = "h:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_0:2/IB} [2]mlx5_3:1/IB [RO]; OOB ib0:10.0.0.1<0>"
    second = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/1(2)/GDRDMA(PCI)/Shared"
    found = parse_log(f"{merged}\n{second}")
    assert (found.adapters, found.used) == (("mlx5_0", "mlx5_0:2", "mlx5_3"), ("mlx5_3",))
    assert found.gdr_connections == 1

    virtual = "h:1:2 [0] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=400000 ndevs=2"
    two = "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1:3:0/IB [1]mlx5_1:1::1/IB [RO]; OOB ib0:10.0.0.1<0>"
    over = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/2/GDRDMA"
    assert parse_log(f"{two}\n{virtual}\n{over}").used == ("mlx5_0", "mlx5_1")


def test_a_log_of_nothing_says_nothing() -> None:
    assert parse_log("") == parse_log("epoch 3 loss 0.1\nNCCL INFO\nNCCL INFO Channel 00/0 : 0[0] -> 1[1\n\0\n")
    assert parse_log("").network is None
