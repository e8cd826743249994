"""Faults as they are found in published tables."""

from __future__ import annotations

from . import claims, hardware, times
from .planting import Plant, shifted

FAULTS: dict[str, Plant] = {
    "average_wrong": times.average_wrong,
    "average_outside_rows": times.average_outside_rows,
    "gpu_types_pooled": hardware.gpu_types_pooled,
    "gpu_types_mixed_in_row": hardware.gpu_types_mixed_in_row,
    "speedup_wrong": claims.claim("speedup", shifted(1.06, 1.5)),
    "efficiency_wrong": claims.claim("efficiency", shifted(1.06, 1.3)),
    "baselines_mixed": claims.baselines_mixed,
    "baseline_unnamed": claims.baseline_unnamed,
    "baseline_misnamed": claims.baseline_misnamed,
    "superlinear": claims.superlinear,
    "batch_changed": claims.batch_changed,
    "throughput_wrong": times.cell("throughput", shifted(1.1, 2.0), 1),
    "steps_wrong": times.cell("steps", lambda rng, value: value + rng.choice([-1, 1, 40]) * max(1, value // 50), 0),
    "ranks_disagree": times.ranks_disagree,
    "runs_disagree": times.runs_disagree,
}
"""Class -> a table with such a fault, and the lines it is in."""
