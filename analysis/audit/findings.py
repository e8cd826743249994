"""What can be wrong with a table of results: a closed list, each with its weight and advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

KINDS = {
    # The conclusion itself is in doubt.
    "gpu_types_pooled": (3, "average each GPU type by itself; different hardware is not a repetition"),
    "average_outside_rows": (3, "take the average again from the rows; publish the rows beside it"),
    "baselines_mixed": (3, "give every row against one GPU and against one node, in two named columns"),
    "spread_exceeds_effect": (3, "repeat both sizes (six runs or more, exclusive nodes) and give the spread beside the claim"),
    "parts_exceed_total": (3, "measure the parts and the total in the same run"),
    "bandwidth_impossible": (3, "take bandwidth as 2(n-1)/n times the bytes of the gradients over the time of one exchange"),
    "gpu_types_mixed_in_row": (3, "ask for one GPU type by name; a mixed job runs at the speed of its slowest GPU"),
    "gpu_types_compared": (3, "take the baseline on the same GPU type"),
    "superlinear": (3, "measure the baseline again, alone on its node; a slow baseline makes everything after it look fast"),
    "efficiency_dips": (3, "repeat the size that dips, on other nodes too; what costs more with size does not cost less again"),
    "configuration_changed": (3, "take the baseline with the same parallelism, precision and techniques, or give both columns"),
    "batch_changed": (3, "hold the batch per GPU or the global batch at every size, and give it in a column"),
    "ranks_disagree": (
        3,
        "check that the loop calls the model that DDP wraps: ranks that exchange gradients wait for each other",
    ),
    "runs_disagree": (3, "find out what differed (other jobs on the node, input, clocks) before averaging; use --exclusive"),
    "scaling_kind_wrong": (3, "weak scaling grows the work with the GPUs; say which quantity was held fixed"),
    # A printed number is not what it is said to be.
    "average_wrong": (2, "take the average again from the rows; publish the rows beside it"),
    "average_is_median": (2, "call a median a median"),
    "speedup_inverted": (2, "speedup is the baseline's time over the row's"),
    "speedup_wrong": (2, "take the speedup again from the times; say which baseline and which average it uses"),
    "efficiency_wrong": (2, "efficiency is speedup over the ratio of GPUs; say which baseline"),
    "baseline_misnamed": (2, "name the baseline that was used, or take the column again from the named one"),
    "total_wrong": (2, "the rate of all GPUs is that of one times their number"),
    "throughput_wrong": (2, "throughput is samples over time: check which samples and which time were counted"),
    "steps_wrong": (2, "steps per epoch are samples over the global batch, rounded up (down where the last batch is dropped)"),
    "global_batch_wrong": (2, "the global batch is batch per GPU times GPUs"),
    "gpus_wrong": (2, "GPUs are nodes times GPUs per node"),
    "gpus_exceed_node": (2, "check the node type: its nodes have fewer GPUs"),
    "node_count_wrong": (2, "copy the node list from `sacct -j JOB -o nodelist`"),
    "node_list_malformed": (2, "copy the node list from `sacct -j JOB -o nodelist`"),
    "node_repeated": (2, "copy the node list from `sacct -j JOB -o nodelist`; processes on one node share its GPUs"),
    "node_unknown": (2, "check the names with `scontrol show nodes`, or the profile with `hpcddp clusters show`"),
    "gpu_type_wrong": (2, "check with `nvidia-smi -L` on the node, and name the type in the request"),
    # It cannot be told.
    "baseline_unnamed": (1, "name the baseline in the column's header: `efficiency vs 1 GPU`, `efficiency vs 1 node`"),
    "baseline_missing": (1, "add the baseline's row"),
    "utilization_contradicts": (1, "take utilisation as a mean over the whole run; a single reading says nothing of it"),
    "rate_of_one_gpu": (1, "say in the header whether a rate is of one GPU or of all: `tokens/s/GPU`"),
    "values_rounded": (1, "give the numbers as measured; digits that are zero throughout look like estimates"),
}
"""Class -> (weight: 3 the conclusion, 2 a number, 1 unclear; what to do)."""


@dataclass(frozen=True)
class Finding:
    """One thing that does not add up."""

    kind: str
    lines: tuple[int, ...]
    """Of the file."""
    claimed: str
    follows: str
    sentence: str

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "class": self.kind,
            "weight": self.weight,
            "lines": list(self.lines),
            "claimed": self.claimed,
            "follows": self.follows,
            "sentence": self.sentence,
            "advice": self.advice,
        }

    @property
    def weight(self) -> int:
        return KINDS[self.kind][0]

    @property
    def advice(self) -> str:
        return KINDS[self.kind][1]


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """In the order of KINDS, heaviest first, then by line; the same said of several rows is one finding."""
    lines: dict[Finding, list[int]] = {}
    for found in findings:
        lines.setdefault(replace(found, lines=()), []).extend(found.lines)
    merged = [replace(found, lines=tuple(sorted(set(of)))) for found, of in lines.items()]
    order = list(KINDS)
    return sorted(merged, key=lambda found: (order.index(found.kind), found.lines))
