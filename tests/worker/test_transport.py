"""How a job learns which network it is on: from a library's log during the first collective, a stand-in of which writes here."""

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
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
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
    """NCCL's own words on why, which its log would otherwise take along; the variables are gone all the same."""
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
    """Its group is made by itself, before: the log has begun then. What the script has set of it is its own."""
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
    """By a variable, or in one of the files that NCCL reads variables from; a comment there is none."""
    own = tmp_path / "nccl.conf"
    own.write_text("#NCCL_DEBUG=WARN\nNCCL_IB_HCA=mlx5_0\n")
    assert transport.where_logged({"NCCL_IB_HCA": "mlx5_0"}, [str(own), str(tmp_path / "none")]) is None
    assert transport.where_logged({"NCCL_DEBUG": "WARN"}, []) == "NCCL_DEBUG"
    assert transport.where_logged({"NCCL_DEBUG_FILE": "/tmp/x"}, []) == "NCCL_DEBUG_FILE"
    own.write_text("NCCL_IB_HCA=mlx5_0\nNCCL_DEBUG=WARN\n")
    assert transport.where_logged({}, [str(own)]) == str(own)
    assert transport.where_logged({"NCCL_CONF_FILE": str(own)}, []) == str(own)


def _record_with_gloo(folder: Path) -> None:
    group = join(this_rank("local"), "cpu")
    transport.record_transport(group, folder)
    group.leave()


def test_ranks_of_gloo_record_their_interface(tmp_path: Path) -> None:
    forked.values(tmp_path / "ranks", 2, _record_with_gloo, tmp_path)
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
    """A node's adapters are those that any of its ranks found or uses; the fewest are named."""
    left = RankTransport(adapters=("a", "b"), used=("a",), network_connections=2, gdr_connections=2, gdr=False, channels=2)
    right = RankTransport(adapters=("a", "b"), used=("b",), network_connections=2, version="2.28.9", channels=4)
    record = merged(1, [("n1", left), ("n1", right), ("n2", left), ("n2", left)])
    assert record.nodes["n1"].used == ("a", "b")
    assert record.fewest_adapters == ("n2", ("a",))
    assert (record.network_connections, record.gdr_connections, record.channels, record.version) == (8, 6, 4, "2.28.9")
    assert "GPUDirect RDMA on 6 of 8 connections" in transport_words(record)
