"""How much memory a rank took at most."""

from __future__ import annotations

import resource

import torch


def peak_memory_bytes(device: torch.device) -> dict[str, int]:
    """On CUDA what tensors took of the GPU (`allocated`) and what torch kept for them (`reserved`); on a CPU what the process
    had of the node's memory (`resident`), its loader processes not counted. The most since the process began.
    """
    if device.type == "cuda":
        return {"allocated": torch.cuda.max_memory_allocated(device), "reserved": torch.cuda.max_memory_reserved(device)}
    return {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}  # KiB on Linux: getrusage(2)
