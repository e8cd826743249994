"""Faults as they are found in published tables."""

from __future__ import annotations

from . import claims, hardware, times
from .planting import Plant, shifted

FAULTS: dict[str, Plant] = {
    "average_wrong": times.average_wrong,
    "average_outside_rows": times.average_outside_rows,
    "average_is_median": times.average_is_median,
    "gpu_types_pooled": hardware.gpu_types_pooled,
    "gpu_types_mixed_in_row": hardware.gpu_types_mixed_in_row,
    "gpu_types_compared": hardware.gpu_types_compared,
    "gpu_type_wrong": hardware.gpu_type_wrong,
    "gpus_wrong": hardware.gpus_wrong,
    "gpus_exceed_node": hardware.gpus_exceed_node,
    "node_list_malformed": hardware.node_list(lambda text, nodes: text.replace("]", "-09]") if "[" in text else text + "["),
    "node_repeated": hardware.node_list(lambda text, nodes: ",".join(["gn01"] * nodes)),
    "node_count_wrong": hardware.node_list(lambda text, nodes: ",".join(f"gn{i + 1:02}" for i in range(nodes - 1))),
    "node_unknown": hardware.node_list(lambda text, nodes: f"gn[{21}-{20 + nodes}]"),
    "speedup_wrong": claims.claim("speedup", shifted(1.06, 1.5)),
    "speedup_inverted": claims.claim("speedup", lambda _, value: 1 / value),
    "efficiency_wrong": claims.claim("efficiency", shifted(1.06, 1.3)),
    "baselines_mixed": claims.baselines_mixed,
    "baseline_unnamed": claims.baseline_unnamed,
    "baseline_misnamed": claims.baseline_misnamed,
    "baseline_missing": claims.baseline_missing,
    "superlinear": claims.superlinear,
    "efficiency_dips": claims.efficiency_dips,
    "batch_changed": claims.batch_changed,
    "throughput_wrong": times.cell("throughput", shifted(1.1, 2.0), 1),
    "steps_wrong": times.cell("steps", lambda rng, value: value + rng.choice([-1, 1, 40]) * max(1, value // 50), 0),
    "global_batch_wrong": times.cell("global_batch", lambda rng, value: value * rng.choice([2, 4]), 0),
    "parts_exceed_total": times.parts_exceed_total,
    "ranks_disagree": times.ranks_disagree,
    "utilization_contradicts": times.utilization_contradicts,
    "runs_disagree": times.runs_disagree,
    "spread_exceeds_effect": times.spread_exceeds_effect,
    "scaling_kind_wrong": times.scaling_kind_wrong,
    "bandwidth_impossible": times.bandwidth_impossible,
}
"""Class -> a table with such a fault, and the lines it is in."""
