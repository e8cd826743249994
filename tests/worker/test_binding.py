"""What a rank finds of its processors, its memory, its GPU and its share of the node."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hpcddp.core.launch_record import RankBinding
from hpcddp.core.written_lists import parse_cpu_list
from hpcddp.worker.binding import own_binding, pci_address
from hpcddp.worker.node_share import job_cpus, machine_cores, node_share
from hpcddp.worker.rank_result import NodeShare
from hpcddp.worker.ranks import this_rank
from tests.fake_node import FakeNode
from tests.worker import given

TWO_SOCKETS = FakeNode(sockets=2, cores=8, threads=2, numa_per_socket=2, gpus=(0, 3, -1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TWO_SOCKETS.write(tmp_path)


def test_cores_sockets_and_numa_nodes(folder: Path) -> None:
    found = TWO_SOCKETS.binding(folder, TWO_SOCKETS.threads_of(range(4, 12)), gpu=1)
    assert found == RankBinding(
        cpus="4-11,20-27",
        cores="4-11",
        node_cores=16,
        sockets=(0, 1),
        numa_nodes="1-2",
        memory_nodes="0-3",
        memory_policy="default",
        memory_sockets=(0, 1),
        gpu="0000:27:00.0",
        gpu_numa_node=3,
        gpu_socket=1,
    )


@pytest.mark.parametrize(
    ("memory", "policy", "nodes", "sockets"),
    [
        ("0-3", "bind:2", "2", (1,)),
        ("0-1", "default", "0-1", (0,)),
        ("0-3", "bind=static:0-1", "0-1", (0,)),
        ("0-3", "prefer:3", "0-3", (0, 1)),
    ],
)
def test_memory_is_what_cpuset_and_policy_leave(
    folder: Path, memory: str, policy: str, nodes: str, sockets: tuple[int, ...]
) -> None:
    found = TWO_SOCKETS.binding(folder, [0], memory=memory, policy=policy)
    assert (found.memory_nodes, found.memory_sockets) == (nodes, sockets)


def test_a_gpu_of_which_the_firmware_says_nothing(folder: Path) -> None:
    """Linux then says that all processors are near it: of two sockets that is unknown, of one it is that one."""
    assert TWO_SOCKETS.binding(folder, [0], gpu=2).gpu_socket is None
    single = FakeNode(sockets=1, gpus=(-1,))
    found = single.binding(single.write(folder / "single"), [0], gpu=0)
    assert (found.gpu_socket, found.gpu_numa_node) == (0, None)


def test_a_machine_without_these_files(tmp_path: Path) -> None:
    found = FakeNode().binding(tmp_path, [0, 1], gpu=None)
    assert found == RankBinding(cpus="0-1", memory_nodes="0-1", memory_policy="default")


def test_this_process() -> None:
    found = own_binding(None)
    assert parse_cpu_list(found.cpus) == os.sched_getaffinity(0)
    assert found.gpu is None


def test_the_address_is_torchs_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(pci_domain_id=4, pci_bus_id=0xC1, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    assert pci_address(0) == "0004:c1:00.0"


def test_the_address_is_nvmls_where_torch_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace())
    monkeypatch.setattr("hpcddp.worker.telemetry.gpu.GpuReader", lambda nvml, count: nvml.reader)
    nvml = SimpleNamespace(
        reader=SimpleNamespace(describe=lambda: [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetPciInfo=lambda gpu: SimpleNamespace(busId={"GPU-a": "00000000:17:00.0", "GPU-b": "00000004:C1:00.0"}[gpu]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert pci_address(1) == "0004:c1:00.0"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert pci_address(1) is None


RANK = this_rank(
    "slurm",
    {
        **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_JOB_ID": "7"},
        **{"MASTER_ADDR": "gn03", "MASTER_PORT": "1", "SLURMD_NODENAME": "gn03"},
    },
)

MIXED = {"SLURM_JOB_CPUS_PER_NODE": "48(x2),40", "SLURM_CPUS_ON_NODE": "2"}
"""As a twin of rcc says in a step of two tasks on three exclusive nodes."""


@pytest.mark.parametrize(("node", "cpus"), [("0", 48), ("1", 48), ("2", 40), ("3", None)])
def test_the_jobs_cpus_not_the_steps(node: str, cpus: int | None) -> None:
    assert job_cpus({**MIXED, "SLURM_NODEID": node}) == cpus


PROFILE = {"default_node_type": "v100", "node_types": {"v100": {"physical_cores": 32, "smt": 4}, "fat": {"physical_cores": None}}}


@pytest.mark.parametrize(
    ("profile", "node_type", "of"),
    [(PROFILE, None, 128), (PROFILE, "v100", 128), (PROFILE, "fat", machine_cores()), ({}, None, machine_cores())],
)
def test_a_node_has_what_its_profile_says(tmp_path: Path, profile: dict[str, Any], node_type: str | None, of: int) -> None:
    what = given.point(1)
    what = dataclasses.replace(what, layout=dataclasses.replace(what.layout, node_type=node_type))
    spec = dataclasses.replace(given.job(tmp_path, what, profile=profile), backend="slurm")
    assert node_share(spec, RANK, {**MIXED, "SLURM_NODEID": "0"}) == NodeShare(host="gn03", cpus=48, of=of)


def test_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    """Slurm may count 4 CPUs on a machine of 4 cores and 8 threads: a job that has these has the node."""
    for cpu in range(8):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    (tmp_path / "cpuidle").mkdir()
    assert machine_cores(tmp_path) == 4
    assert machine_cores(tmp_path / "none") == os.cpu_count()


def test_without_slurm_nothing_is_reserved(tmp_path: Path) -> None:
    """The local runner may itself run inside a job: its variables are not this run's."""
    assert node_share(given.job(tmp_path, given.point(1)), RANK, MIXED).cpus is None
    assert job_cpus({}) is None
