"""A torch for ROCm, made of this one: what it is called, what is recorded of its GPUs, what is said when they fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hpcddp.worker.faults import fault_of
from hpcddp.worker.gpus import no_gpu, visible_devices
from hpcddp.worker.launch_record import allowed_environment, node_facts, tf32, versions
from hpcddp.worker.ranks import this_rank
from tests.worker.test_ranks import LOCAL

GIB = 2**30

FULL = (
    "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB of which 1.00 GiB is free. "
    "Of the allocated memory 62.00 GiB is allocated by PyTorch"
)
"""The allocator's words where the code was made for HIP."""


@pytest.fixture(autouse=True)
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dies of an MI250X, of which a process has the second and the first."""
    dies = [facts(bus=0xC6), facts(bus=0xC1)]
    answers: dict[str, Any] = {
        "device_count": lambda: len(dies),
        "is_available": lambda: True,
        "get_arch_list": lambda: ["gfx908", "gfx90a"],
        "get_device_properties": lambda index: dies[index],
        "get_device_name": lambda index: dies[index].name,
        "mem_get_info": lambda index: (GIB, 64 * GIB),
        "memory_reserved": lambda index: 62 * GIB,
        "max_memory_allocated": lambda index: 62 * GIB,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 21, 5))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 3_004_000)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.3.42131-fa1d09cbd")


def facts(bus: int) -> Any:
    properties = {"name": "AMD Instinct MI250X", "gcnArchName": "gfx90a:sramecc+:xnack-", "total_memory": 64 * GIB}
    return SimpleNamespace(**properties, major=9, minor=0, pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)


def test_its_libraries_have_their_own_names() -> None:
    """What torch calls nccl and cudnn there is RCCL and MIOpen; a GPU's capability is its architecture."""
    found = versions()
    assert (found["rocm"], found["rccl"], found["miopen"]) == ("6.3.42131-fa1d09cbd", "2.21.5", "3.4.0")
    assert not {"cuda", "nccl", "cudnn"} & set(found)
    assert [gpu.capability for gpu in node_facts("here").gpus] == ["gfx90a", "gfx90a"]


def test_a_torch_for_cuda_is_recorded_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and order of versions go into the id of an environment."""
    monkeypatch.setattr(torch.version, "hip", None)
    assert list(versions()) == ["python", "torch", "torchvision", "cuda", "nccl", "cudnn", "hpcddp"]


def test_convolutions_have_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """MIOpen's are in fp32 whatever torch's flag for cuDNN says."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert tf32() == {"convolutions": False, "products": False}


def test_what_hides_gpus_is_named_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's own variables, the first that counts first."""
    env = {"HIP_VISIBLE_DEVICES": "1,0", "ROCR_VISIBLE_DEVICES": "2,3"}
    assert visible_devices(env) == "ROCR_VISIBLE_DEVICES 2,3, HIP_VISIBLE_DEVICES 1,0"
    assert visible_devices({}) == "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES not set"
    assert allowed_environment(env) == env
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    trouble = no_gpu(this_rank("local", LOCAL))
    assert trouble is not None
    assert "(ROCR_VISIBLE_DEVICES 2,3, HIP_VISIBLE_DEVICES 1,0)" in trouble
    assert "rocm-smi on that node" in trouble
    assert "(torch is built for ROCm 6.3" in trouble


def test_a_full_gpu_is_no_full_node() -> None:
    """Its sentence says HIP in place of CUDA."""
    fault = fault_of(torch.OutOfMemoryError(FULL), this_rank("local", LOCAL))
    assert fault.kind == "out_of_memory"
    assert "memory of GPU 1 (AMD Instinct MI250X) ran out: 62.0 GiB of 63.0 GiB were taken and 2.0 GiB more" in fault.sentence


def test_a_rank_that_lost_the_others_by_rccl() -> None:
    """As by NCCL: another rank is the cause more often than not."""
    assert fault_of(RuntimeError("RCCL error: unhandled system error"), this_rank("local", LOCAL)).kind == "contact"
