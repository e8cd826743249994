"""What must hold before a run's figures count. Each gate says what it saw; none of them stops the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Gate = dict[str, Any]
"""`name`, `passed` and `evidence`, a sentence."""


def parameters_agree(by_rank: Sequence[dict[str, str]]) -> Gate:
    """`by_rank`: each rank's checksums of its parameters by when they were taken."""
    for when in by_rank[0]:
        sums = [rank_sums.get(when) for rank_sums in by_rank]
        odd = [rank for rank, found in enumerate(sums) if found != sums[0]]
        if odd:
            those = f"{len(odd)} of {len(sums)} ranks differ from rank 0"
            return _gate("parameters agree", False, f"{when} {those}: rank {odd[0]} has {sums[odd[0]]}, rank 0 {sums[0]}")
    seen = "; ".join(f"{when} {value}" for when, value in by_rank[0].items())
    return _gate("parameters agree", True, f"{len(by_rank)} rank(s), SHA-256 {seen}")


def loss_is_finite(by_rank: Sequence[bool]) -> Gate:
    """`by_rank`: whether each rank's losses were all finite."""
    odd = [rank for rank, finite in enumerate(by_rank) if not finite]
    if odd:
        those = f"{len(odd)} of {len(by_rank)} ranks"
        return _gate("loss is finite", False, f"rank {odd[0]} had a loss that is infinite or not a number ({those})")
    return _gate("loss is finite", True, f"every step of {len(by_rank)} rank(s)")


def ranks_stepped_equally(by_rank: Sequence[int], planned: int) -> Gate:
    """`by_rank`: steps whose row each rank wrote."""
    odd = [rank for rank, steps in enumerate(by_rank) if steps != planned]
    if odd:
        return _gate("ranks stepped equally", False, f"rank {odd[0]} made {by_rank[odd[0]]} of {planned} steps")
    return _gate("ranks stepped equally", True, f"{planned} steps on each of {len(by_rank)} rank(s)")


def every_epoch_reshuffled(repeated_by_rank: Sequence[int | None], epochs: int) -> Gate:
    """`repeated_by_rank`: the first epoch that began with the same batches as the one before it, None for no such epoch."""
    for rank, epoch in enumerate(repeated_by_rank):
        if epoch is not None:
            return _gate(
                "every epoch reshuffled", False, f"rank {rank} began epoch {epoch} with the batches of epoch {epoch - 1}"
            )
    return _gate("every epoch reshuffled", True, f"{epochs} epoch(s) begun, no order twice in a row")


def evaluation_counts_every_sample(counted: int, samples: int) -> Gate:
    """`counted` over all ranks against the samples of the evaluation set."""
    return _gate("evaluation counts every sample once", counted == samples, f"{counted} of {samples} samples")


def _gate(name: str, passed: bool, evidence: str) -> Gate:
    return {"name": name, "passed": passed, "evidence": evidence}
