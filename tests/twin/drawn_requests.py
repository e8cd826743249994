"""Random requests to a cluster: around its limits, and anywhere between."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hypothesis import strategies as st

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import Qos
from tests.twin.accounting import ACCOUNTS, account_for
from tests.twin.controllers import UNKNOWN_NODES
from tests.twin.given_requests import Request
from tests.twin.partitions import partitions

LONGEST_MIN = 20_000
"""Two weeks: longer than any site allows."""

ABSENT = "absent"
"""A QOS, partition or account that no cluster has."""


@st.composite
def requests(draw: st.DrawFn, profile: ClusterProfile) -> Request:
    """Most of them suit one rule of the profile in most respects."""
    key = draw(st.sampled_from(sorted(profile.node_types)))
    node, rule = profile.node_types[key], draw(st.sampled_from(profile.slurm.qos))
    gpus = draw(st.integers(1, node.gpus or 1))
    request = Request(
        node_type=key,
        nodes=draw(_counts(_nodes(profile, node, rule))),
        gpus_per_node=gpus,
        cores_per_rank=draw(st.integers(1, max(1, (node.physical_cores or 1) // gpus))),
        exclusive=draw(st.booleans()),
        launcher=draw(st.sampled_from(("direct", "direct", "torchrun"))),
        device=draw(st.sampled_from(("cuda", "cuda", "cuda", "cpu"))),
        walltime_min=draw(_counts(_minutes(profile, rule))),
        partition=draw(st.sampled_from([None, rule.partition])),
        qos=draw(st.sampled_from([rule.name, rule.name, None])),
        intent=draw(st.sampled_from([None, None, rule.intent])),
        mem_mb=draw(st.none() | _counts([node.memory_mb])) if node.memory_mb else None,
        account=account_for(profile, key),
    )
    return draw(st.just(request) | _with_one_change(profile, node, request))


def _with_one_change(profile: ClusterProfile, node: NodeType, request: Request) -> st.SearchStrategy[Request]:
    """The request with one thing that may be wrong."""
    names = [rule.name for rule in profile.slurm.qos]
    places = [partition.name for partition in partitions(profile)]
    changes: dict[str, st.SearchStrategy[object]] = {
        "nodes": st.integers(1, 2 * node.count if node.count else UNKNOWN_NODES),
        "gpus_per_node": st.integers(1, 2 * (node.gpus or 1)),
        "cores_per_rank": st.integers(1, 2 * (node.physical_cores or 1)),
        "walltime_min": st.integers(1, LONGEST_MIN),
        "qos": st.sampled_from([*names, None, ABSENT]),
        "partition": st.sampled_from([*places, None, ABSENT]),
        "account": st.sampled_from([*ACCOUNTS, ABSENT]),
        **({"mem_mb": st.integers(1000, 2 * node.memory_mb)} if node.memory_mb else {}),
    }
    return st.sampled_from(sorted(changes)).flatmap(
        lambda key: changes[key].map(lambda value: dataclasses.replace(request, **{key: value}))  # type: ignore[arg-type]
    )


def _counts(limits: Iterable[int | None]) -> st.SearchStrategy[int]:
    """Anything up to the largest limit, and what lies around each of them."""
    known = [limit for limit in limits if limit]
    around = [value for limit in known for value in (limit - 1, limit, limit + 1) if value > 0]
    within = st.integers(1, max(known, default=LONGEST_MIN))
    return within | st.sampled_from(around) if around else within


def _nodes(profile: ClusterProfile, node: NodeType, rule: Qos) -> list[int | None]:
    """Where the profile knows no limit, a few."""
    given = [limit for part in profile.slurm.partitions.values() for limit in (part.min_nodes, part.max_nodes)]
    known = [node.count, rule.min_nodes, rule.max_nodes, *given]
    return known if node.count or rule.max_nodes else [*known, UNKNOWN_NODES // 4]


def _minutes(profile: ClusterProfile, rule: Qos) -> list[int | None]:
    return [rule.max_walltime_min, *(part.max_walltime_min for part in profile.slurm.partitions.values())]
