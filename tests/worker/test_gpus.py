"""Whether a torch build has code for a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

from hpcddp.worker.gpus import no_gpu, not_covered, not_covered_by_rocm
from hpcddp.worker.ranks import Rank, this_rank
from tests.worker.test_ranks import SLURM

TODAY = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_120"]


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 3), (12, 0), (12, 1)])
def test_covered(capability: tuple[int, int]) -> None:
    """Binary code runs within its major version from its minor one on, PTX on everything newer."""
    assert not_covered("GPU", capability, TODAY) is None


@pytest.mark.parametrize("capability", [(7, 0), (6, 1), (11, 0)])
def test_not_covered(capability: tuple[int, int]) -> None:
    """A V100 (7.0) with today's wheel: named, with what to install."""
    trouble = not_covered("Tesla V100-SXM2-16GB", capability, TODAY)
    assert trouble is not None
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
    """What stands behind it says how its memory is set, and is no part of the build."""
    assert not_covered_by_rocm("AMD Instinct MI250X", "gfx90a:sramecc+:xnack-", ["gfx908", "gfx90a"]) is None
    trouble = not_covered_by_rocm("AMD Instinct MI300A", "gfx942:sramecc+:xnack-", ["gfx908", "gfx90a"])
    assert trouble is not None
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
    """Device 0 is its own; by its local rank it would find none, and the sentence says what to write."""
    gpus[0] = 1
    assert no_gpu(local_rank_1("zero")) is None
    trouble = no_gpu(local_rank_1("rank"))
    assert trouble is not None
    assert "local rank 1 and sees 1 GPU(s)" in trouble
    assert "the profile says slurm.local_device: zero" in trouble


def test_ranks_that_would_share_device_0_are_refused(gpus: list[int]) -> None:
    """Where each sees all GPUs after all; a node's only rank takes the first of several."""
    assert no_gpu(local_rank_1("rank")) is None
    trouble = no_gpu(local_rank_1("zero"))
    assert trouble is not None
    assert "all 4 ranks of the node would use the first one" in trouble
    single = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
    assert no_gpu(local_rank_1("zero", **single)) is None
