"""Whether this process has a GPU its torch can use; a sentence with the next step where it has not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.ranks import Rank

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def require_gpu(rank: Rank) -> torch.device:
    """Selects the rank's GPU by its local rank; HpcddpError rather than a silent run on the CPU."""
    trouble = no_gpu(rank)
    if trouble:
        raise HpcddpError(trouble)
    device = torch.device("cuda", rank.local_rank)
    torch.cuda.set_device(device)
    return device


def no_gpu(rank: Rank) -> str | None:
    """Why this rank cannot train on a GPU, None when it can."""
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} on {rank.host} is built without CUDA: "
            f"install the build the profile names, or set `device: cpu`"
        )
    visible = torch.cuda.device_count()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    if not torch.cuda.is_available() or visible == 0:
        return (
            f"rank {rank.rank} on {rank.host} finds no GPU (CUDA_VISIBLE_DEVICES {shown}): look at the job's GPU request, "
            f"at nvidia-smi on that node and at its driver (torch is built for CUDA {torch.version.cuda}), or set `device: cpu`"
        )
    if rank.local_rank >= visible:
        return (
            f"rank {rank.rank} on {rank.host} is local rank {rank.local_rank} but sees {visible} GPU(s) "
            f"(CUDA_VISIBLE_DEVICES {shown}): "
            f"every rank must see all GPUs of its node; ask for them per node, or add `--gpu-bind=none` to srun"
        )
    gpu = torch.cuda.get_device_properties(rank.local_rank)
    return not_covered(gpu.name, (gpu.major, gpu.minor), torch.cuda.get_arch_list())


def not_covered(gpu: str, capability: tuple[int, int], arch_list: Iterable[str]) -> str | None:
    """A sentence if a torch built for `arch_list` has no code for the GPU, else None.

    Binary code (sm_XY) runs on the same major version from its minor version on, PTX (compute_XY) on everything newer. With the
    suffix `a` either runs on exactly its own version, with `f` within the same major version (CUDA C++ Programming Guide,
    "Compute Capability" and "Feature Set Compiler Targets").
    """
    archs = list(arch_list)
    if any(_runs(arch, capability) for arch in archs):
        return None
    major, minor = capability
    return (
        f"torch {torch.__version__} has no code for {gpu} (compute capability {major}.{minor}; "
        f"built for {', '.join(archs) or 'no GPU'}): install a build that lists sm_{major}{minor}"
    )


def _runs(arch: str, capability: tuple[int, int]) -> bool:
    match = _ARCH.fullmatch(arch)
    if match is None:
        return False
    kind, major, minor, suffix = match[1], int(match[2]), int(match[3]), match[4]
    if suffix == "a":
        return (major, minor) == capability
    if kind == "compute" and not suffix:
        return (major, minor) <= capability
    return major == capability[0] and minor <= capability[1]
