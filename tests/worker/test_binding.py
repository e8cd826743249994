"""What a rank finds of its processors, its memory and its GPU, on nodes that are not there and on this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpcddp.core.launch_record import RankBinding
from hpcddp.core.written_lists import parse_cpu_list
from hpcddp.worker.binding import own_binding, pci_address
from tests.fake_topology import FakeNode

TWO_SOCKETS = FakeNode(sockets=2, cores=8, threads=2, numa_per_socket=2, gpus=(0, 3, -1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TWO_SOCKETS.write(tmp_path)


def test_cores_sockets_and_numa_nodes(folder: Path) -> None:
    """Both threads of a core are one core; NUMA nodes are numbered through the sockets."""
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
    """A preference leaves all of it."""
    found = TWO_SOCKETS.binding(folder, [0], memory=memory, policy=policy)
    assert (found.memory_nodes, found.memory_sockets) == (nodes, sockets)


def test_a_gpu_of_which_the_firmware_says_nothing(folder: Path) -> None:
    """Linux then says that all processors are near it: of two sockets that is unknown, of one it is that one."""
    assert TWO_SOCKETS.binding(folder, [0], gpu=2).gpu_socket is None
    single = FakeNode(sockets=1, gpus=(-1,))
    found = single.binding(single.write(folder / "single"), [0], gpu=0)
    assert (found.gpu_socket, found.gpu_numa_node) == (0, None)


def test_a_machine_without_these_files(tmp_path: Path) -> None:
    """Unknown, and no error: another system, or a container that hides them."""
    found = FakeNode().binding(tmp_path, [0, 1], gpu=None)
    assert found == RankBinding(cpus="0-1", memory_nodes="0-1", memory_policy="default")


def test_this_process() -> None:
    """As the system has it."""
    found = own_binding(None)
    assert parse_cpu_list(found.cpus) == os.sched_getaffinity(0)
    assert found.gpu is None


def test_the_address_is_torchs_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel writes it."""
    gpu = SimpleNamespace(pci_domain_id=4, pci_bus_id=0xC1, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    assert pci_address(0) == "0004:c1:00.0"


def test_the_address_is_nvmls_where_torch_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the GPU that this process has under that number; unknown without NVML."""
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
