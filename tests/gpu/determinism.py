"""Arithmetic that gives the same bits every time, for tests that compare bits."""

from __future__ import annotations

import os


def same_bits_every_time() -> None:
    """Called before CUDA begins: cuBLAS reads its workspace then (torch's notes on reproducibility)."""
    import torch

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
