"""Whether this process has a GPU its torch can use; a sentence with the next step where it has not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.ranks import Rank

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def require_gpu(rank: Rank) -> torch.device:
    """Selects the rank's GPU; HpcddpError rather than a silent run on the CPU."""
    trouble = no_gpu(rank)
    if trouble:
        raise HpcddpError(trouble)
    device = torch.device("cuda", rank.gpu)
    torch.cuda.set_device(device)
    return device


def no_gpu(rank: Rank) -> str | None:
    """Why this rank cannot train on a GPU, None when it can."""
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"torch {torch.__version__} on {rank.host} is built without CUDA or ROCm. "
            f"Install the build that the profile names, or set `device: cpu`."
        )
    visible = torch.cuda.device_count()
    shown = visible_devices()
    if not torch.cuda.is_available() or visible == 0:
        cuda, rocm = torch.version.cuda, torch.version.hip
        tool, platform = ("nvidia-smi", f"CUDA {cuda}") if rocm is None else ("rocm-smi", f"ROCm {rocm}")
        return (
            f"rank {rank.rank} on {rank.host} finds no GPU ({shown}). Check the job's GPU request, "
            f"{tool} on that node, and its driver (torch is built for {platform}), or set `device: cpu`."
        )
    return _wrong_gpus(rank, visible, shown) or _not_built_for(rank.gpu)


def visible_devices(env: Mapping[str, str] = os.environ) -> str:
    """The variables that hide GPUs from this process: `CUDA_VISIBLE_DEVICES 0,1`, for AMD's with ROCm's two of their own.
    ROCR_VISIBLE_DEVICES comes first, and the other two choose among what it leaves (so torch 2.15 reads them)."""
    amd = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") if torch.version.hip is not None else ()
    found = [f"{name} {env[name]}" for name in (*amd, "CUDA_VISIBLE_DEVICES") if name in env]
    return ", ".join(found) or f"{' and '.join((*amd, 'CUDA_VISIBLE_DEVICES'))} not set"


def _wrong_gpus(rank: Rank, visible: int, shown: str) -> str | None:
    """Why `Rank.gpu` is not the rank's own among the GPUs that it sees."""
    who = f"rank {rank.rank} on {rank.host} is local rank {rank.local_rank}"
    sees = f"{who} and sees {visible} GPU(s) ({shown})"
    if rank.gpu >= visible:
        return (
            f"{sees}. Every rank must see all GPUs of its node: request them per node, or put `--gpu-bind=none` into "
            f"slurm.srun_options. If each rank gets only its own GPU, set slurm.local_device: zero in the profile."
        )
    if rank.local_device == "zero" and rank.launcher == "direct" and visible > 1 and rank.ranks_per_node > 1:
        return (
            f"{sees}. By slurm.local_device: zero, all {rank.ranks_per_node} ranks of the node would use the first "
            f"GPU. Give each rank its own (`gpu_request: gpus-per-task`), or set local_device: rank."
        )
    return None


def _not_built_for(index: int) -> str | None:
    gpu, archs = torch.cuda.get_device_properties(index), torch.cuda.get_arch_list()
    if torch.version.hip is not None:
        return not_covered_by_rocm(gpu.name, gpu.gcnArchName, archs)
    return not_covered(gpu.name, (gpu.major, gpu.minor), archs)


def gfx_of(arch: str) -> str:
    """`gfx90a` of `gfx90a:sramecc+:xnack-`, which has the state of features behind it."""
    return arch.partition(":")[0]


def not_covered_by_rocm(gpu: str, arch: str, arch_list: Iterable[str]) -> str | None:
    """The same as not_covered for an AMD GPU, by `gcnArchName`."""
    archs, kind = list(arch_list), gfx_of(arch)
    if kind in archs:
        return None
    built = ", ".join(archs) or "no GPU"
    return f"torch {torch.__version__} has no code for {gpu} ({kind}; built for {built}): install a build that lists {kind}"


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
