"""torch's process-wide switches, as the workload asks for them."""

from __future__ import annotations

import torch

from hpcddp.core.point import Workload


def apply_settings(workload: Workload) -> None:
    """To be called before the model is made. What the workload leaves open stays as torch has it.

    The two `allow_tf32` exist in every torch and warn in none up to 2.15; 2.9 added `fp32_precision` beside them.
    """
    torch.backends.cudnn.benchmark = workload.cudnn_benchmark  # all batches have one shape, so the search is done once
    if workload.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = workload.tf32
        torch.backends.cudnn.allow_tf32 = workload.tf32
