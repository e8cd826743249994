"""A strong and a weak study for one page: what belongs on it, and what of both must be the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hpcddp.analysis.proposal.proposal import Proposal
from hpcddp.analysis.study.series import short_name, value_text
from hpcddp.core.errors import UsageError

OF_EACH = ("work", "global_batch", "workload.batch_per_gpu", "env_id")
"""Keys in which the series may differ: what makes one strong and the other weak, and the software, which the page names."""

OF_EACH_BELOW = ("measure.", "workload.optimizer.")
"""Beginnings of such keys: how long a run is timed, and a learning rate that follows the batch."""

SHOWN = 3
"""Differences that a refusal names."""


@dataclass(frozen=True, kw_only=True)
class ProposalPair:
    """Two studies of the same training on the same nodes, whose sources are marked [S1] and [W1]."""

    strong: Proposal
    weak: Proposal


def pair(a: Proposal, b: Proposal, places: tuple[str, str]) -> ProposalPair:
    """Both in the order of the page; UsageError where they do not belong on one. `places`: how the user named them."""
    strong = [each for each in (a, b) if each.kind.startswith("strong")]
    weak = [each for each in (a, b) if each.kind.startswith("weak")]
    if len(strong) != 1 or len(weak) != 1:
        raise UsageError(f"{places[0]} and {places[1]} are both {a.kind}: a page takes a strong and a weak study, or one of them")
    if found := list(_differences(a, b)):
        more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise UsageError(
            f"{places[0]} and {places[1]} do not belong on one page: {'; '.join(found[:SHOWN])}{more}. Give each its own page"
        )
    return ProposalPair(strong=replace(strong[0], mark="S"), weak=replace(weak[0], mark="W"))


def _differences(a: Proposal, b: Proposal) -> Iterator[str]:
    """`model is resnet18 and resnet50`"""
    keys = [_series(each) for each in (a, b)]
    for name in sorted({name for key in keys for name in key}):
        values = [key.get(name) for key in keys]
        if values[0] != values[1] and not _may_differ(name):
            yield f"{short_name(name)} is {value_text(values[0])} and {value_text(values[1])}"


def _may_differ(name: str) -> bool:
    return name in OF_EACH or (name.startswith(OF_EACH_BELOW) and name != "workload.optimizer.name")


def _series(found: Proposal) -> dict[str, Any]:
    key: dict[str, Any] = json.loads(str(found.sizes[0].row["series"]))
    return key
