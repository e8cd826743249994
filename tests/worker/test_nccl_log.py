"""What NCCL's log says, of lines that people posted of NCCL 2.18 to 2.30, RCCL and aws-ofi-nccl: nccl_logs names their pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.worker.comm.nccl_log import parse_log

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
    """Lines that are torn, of others, or no text at all."""
    assert parse_log("") == parse_log("epoch 3 loss 0.1\nNCCL INFO\nNCCL INFO Channel 00/0 : 0[0] -> 1[1\n\0\n")
    assert parse_log("").network is None
