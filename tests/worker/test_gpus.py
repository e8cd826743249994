"""Whether a torch build has code for a GPU; and a torch for ROCm, made of this one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

from hpcddp.worker.faults import fault_of
from hpcddp.worker.gpus import no_gpu, not_covered, not_covered_by_rocm, visible_devices
from hpcddp.worker.launch_record import allowed_environment, node_facts, tf32, versions
from hpcddp.worker.ranks import Rank, this_rank
from tests.worker.test_rendezvous import LOCAL, SLURM

TODAY = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_120"]


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0), (12, 1)])
def test_covered(capability: tuple[int, int]) -> None:
    assert not_covered("GPU", capability, TODAY) is None


@pytest.mark.parametrize("capability", [(7, 0), (6, 1), (11, 0)])
def test_not_covered(capability: tuple[int, int]) -> None:
    trouble = str(not_covered("Tesla V100-SXM2-16GB", capability, TODAY))
    assert "Tesla V100-SXM2-16GB" in trouble
    assert f"sm_{capability[0]}{capability[1]}" in trouble


def test_a_suffix_binds_to_an_architecture_or_its_family() -> None:
    """Code for sm_90a runs on 9.0 and nowhere else, for sm_120f and compute_120f on 12.0 and 12.1."""
    for family in ("sm_120f", "compute_120f"):
        assert not_covered("GB10", (12, 1), [family]) is None
        assert not_covered("later", (13, 0), [family]) is not None
    assert not_covered("H100", (9, 0), ["sm_90a"]) is None
    assert not_covered("B200", (10, 0), ["sm_90a", "compute_90a"]) is not None


def test_an_amd_gpu_is_covered_by_its_name() -> None:
    assert not_covered_by_rocm("AMD Instinct MI250X", "gfx90a:sramecc+:xnack-", ["gfx908", "gfx90a"]) is None
    trouble = str(not_covered_by_rocm("AMD Instinct MI300A", "gfx942:sramecc+:xnack-", ["gfx908", "gfx90a"]))
    assert "no code for AMD Instinct MI300A (gfx942; built for gfx908, gfx90a): install a build that lists gfx942" in trouble


@pytest.fixture(params=["cuda", "rocm"])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many GPUs this process sees is what is in the list, by a torch of either kind."""
    visible = [4]
    facts = SimpleNamespace(name="MI250X", major=9, minor=0, gcnArchName="gfx90a:sramecc+:xnack-")
    answers: dict[str, Any] = {
        "device_count": lambda: visible[0],
        "is_available": lambda: True,
        "get_arch_list": lambda: ["sm_90"] if request.param == "cuda" else ["gfx90a"],
        "get_device_properties": lambda index: facts,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.version, "cuda", "12.8" if request.param == "cuda" else None)
    monkeypatch.setattr(torch.version, "hip", None if request.param == "cuda" else "6.2")
    return visible


def local_rank_1(local_device: Literal["rank", "zero"], **slurm: str) -> Rank:
    return this_rank("slurm", {**SLURM, **slurm}, local_device)


def test_a_rank_that_sees_its_own_gpu_only(gpus: list[int]) -> None:
    gpus[0] = 1
    assert no_gpu(local_rank_1("zero")) is None
    trouble = str(no_gpu(local_rank_1("rank")))
    assert "local rank 1 and sees 1 GPU(s)" in trouble
    assert "set slurm.local_device: zero in the profile" in trouble


def test_ranks_that_would_share_device_0_are_refused(gpus: list[int]) -> None:
    assert no_gpu(local_rank_1("rank")) is None
    trouble = str(no_gpu(local_rank_1("zero")))
    assert "all 4 ranks of the node would use the first GPU" in trouble
    single = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
    assert no_gpu(local_rank_1("zero", **single)) is None


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
    env = {"HIP_VISIBLE_DEVICES": "1,0", "ROCR_VISIBLE_DEVICES": "2,3"}
    assert visible_devices(env) == "ROCR_VISIBLE_DEVICES 2,3, HIP_VISIBLE_DEVICES 1,0"
    assert visible_devices({}) == "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES not set"
    assert allowed_environment(env) == env
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    trouble = str(no_gpu(this_rank("local", LOCAL)))
    assert "(ROCR_VISIBLE_DEVICES 2,3, HIP_VISIBLE_DEVICES 1,0)" in trouble
    assert "rocm-smi on that node" in trouble
    assert "(torch is built for ROCm 6.3" in trouble


def test_a_full_gpu_is_no_full_node() -> None:
    fault = fault_of(torch.OutOfMemoryError(FULL), this_rank("local", LOCAL))
    assert fault.kind == "out_of_memory"
    assert "memory of GPU 1 (AMD Instinct MI250X) ran out: 62.0 GiB of 63.0 GiB were taken and 2.0 GiB more" in fault.sentence


def test_a_rank_that_lost_the_others_by_rccl() -> None:
    assert fault_of(RuntimeError("RCCL error: unhandled system error"), this_rank("local", LOCAL)).kind == "contact"
