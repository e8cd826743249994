"""Every limit that a profile documents, as a request at the limit and one past it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import Partition, Qos
from tests.twin.accounting import account_for
from tests.twin.given_requests import Request, refusal_by_hpcddp
from tests.twin.partitions import PARTITION, TwinPartition, partitions


@dataclass(frozen=True, kw_only=True)
class DocumentedLimit:
    """A limit: its name, a request that keeps it and one that does not."""

    name: str
    within: Request
    past: Request


def documented_limits(profile: ClusterProfile) -> list[DocumentedLimit]:
    """All of them, each once, with requests that keep every other limit."""
    found: dict[str, DocumentedLimit] = {}
    for limit in _all_limits(profile):
        if limit.name not in found and refusal_by_hpcddp(profile, limit.within) is None:
            found[limit.name] = limit
    return list(found.values())


def _all_limits(profile: ClusterProfile) -> Iterator[DocumentedLimit]:
    """Some of them cannot be reached by the request that is tried: another limit is narrower there."""
    for base, partition, rule in _base_requests(profile):
        node = profile.node_types[base.node_type]
        name = f"qos {rule.name or 'none'} from {rule.min_nodes} nodes on in {partition.name}"
        of_rule = (*_size_limits(name, base, rule), *_rule_limits(name, base, rule, node))
        yield from (limit for limit in of_rule if not _fits_another(profile, rule, partition, limit.past))
        table = profile.slurm.partitions.get(partition.name, Partition())
        yield from _size_limits(f"partition {partition.name}", base, table)
        yield from _node_limits(f"node type {base.node_type}", base, node)
        yield from _user_limits(profile, base, node)
        yield from _forms(profile, base)


def _fits_another(profile: ClusterProfile, own: Qos, partition: TwinPartition, request: Request) -> bool:
    """Whether the nodes and the time suit another rule of the same QOS: such limits are for ranges of nodes."""
    others = (rule for rule in profile.slurm.qos if rule is not own and rule.name == own.name)
    return any(
        rule.partition in (None, partition.name)
        and (not rule.node_types or request.node_type in rule.node_types)
        and rule.min_nodes <= request.nodes <= (rule.max_nodes or request.nodes)
        and request.walltime_min <= (rule.max_walltime_min or request.walltime_min)
        for rule in others
    )


def _base_requests(profile: ClusterProfile) -> Iterator[tuple[Request, TwinPartition, Qos]]:
    """The least that fits each rule in each partition, for each node type, for as long as the rule allows."""
    named = profile.slurm.partitions or any(kind.partition for kind in profile.node_types.values())
    for partition in partitions(profile):
        for rule in profile.slurm.qos:
            for key in partition.node_types:
                if rule.partition not in (None, partition.name) or (rule.node_types and key not in rule.node_types):
                    continue
                given = profile.slurm.partitions.get(partition.name, Partition())
                is_named = (named or rule.partition) and partition.name != PARTITION
                base = Request(
                    node_type=key,
                    nodes=max(rule.min_nodes, given.min_nodes or 1),
                    partition=partition.name if is_named else None,
                    qos=rule.name,
                    walltime_min=rule.max_walltime_min or given.max_walltime_min or 10,
                    account=account_for(profile, key),
                )
                yield base, partition, rule


def _change(base: Request, name: str, key: str, limit: int | None, least: bool = False) -> Iterator[DocumentedLimit]:
    past = None if limit is None else limit - 1 if least else limit + 1
    if past:
        changes: tuple[dict[str, Any], ...] = ({key: limit}, {key: past})
        within, beyond = (dataclasses.replace(base, **change) for change in changes)
        yield DocumentedLimit(name=name, within=within, past=beyond)


def _size_limits(name: str, base: Request, limits: Qos | Partition) -> Iterator[DocumentedLimit]:
    yield from _change(base, f"{name}: max_nodes", "nodes", limits.max_nodes)
    yield from _change(base, f"{name}: min_nodes", "nodes", limits.min_nodes, least=True)
    yield from _change(base, f"{name}: max_walltime_min", "walltime_min", limits.max_walltime_min)


def _rule_limits(name: str, base: Request, rule: Qos, node: NodeType) -> Iterator[DocumentedLimit]:
    """GPUs and CPUs of a job, on as many nodes as they take evenly."""
    for nodes in range(base.nodes, (rule.max_nodes or node.count or 1000) + 1):
        if rule.max_gpus and rule.max_gpus % nodes == 0 and rule.max_gpus // nodes <= (node.gpus or 0):
            yield from _change(
                dataclasses.replace(base, nodes=nodes), f"{name}: max_gpus", "gpus_per_node", rule.max_gpus // nodes
            )
            break
    cpus = rule.max_cpus and rule.max_cpus // node.smt
    yield from _change(base, f"{name}: max_cpus", "cores_per_rank", cpus)


def _node_limits(name: str, base: Request, node: NodeType) -> Iterator[DocumentedLimit]:
    yield from _change(base, f"{name}: count", "nodes", node.count)
    yield from _change(base, f"{name}: gpus", "gpus_per_node", node.gpus)
    yield from _change(base, f"{name}: physical_cores", "cores_per_rank", node.physical_cores)
    exclusive = dataclasses.replace(base, exclusive=True, gpus_per_node=node.gpus or 1)
    yield from _change(exclusive, f"{name}: memory_mb", "mem_mb", node.memory_mb)


def _user_limits(profile: ClusterProfile, base: Request, node: NodeType) -> Iterator[DocumentedLimit]:
    rules = profile.slurm
    if rules.max_gpus_per_user and node.gpus and rules.max_gpus_per_user % node.gpus == 0:
        full = dataclasses.replace(base, gpus_per_node=node.gpus)
        yield from _change(full, "max_gpus_per_user", "nodes", rules.max_gpus_per_user // node.gpus)
    if rules.max_cores_per_user and node.count:
        for nodes in range(1, node.count + 1):
            if rules.max_cores_per_user % nodes == 0:
                several = dataclasses.replace(base, nodes=nodes)
                yield from _change(several, "max_cores_per_user", "cores_per_rank", rules.max_cores_per_user // nodes)


def _forms(profile: ClusterProfile, base: Request) -> Iterator[DocumentedLimit]:
    """An account of another form, and memory where it must not be asked for."""
    if profile.rules_of(profile.node_types[base.node_type]).account_form is not None:
        other = dataclasses.replace(base, account="another")
        yield DocumentedLimit(name=f"node type {base.node_type}: account_form", within=base, past=other)
    if profile.slurm.memory_option == "forbidden":
        yield DocumentedLimit(name="memory_option", within=base, past=dataclasses.replace(base, mem_mb=1000))


def unreachable_limits(profile: ClusterProfile) -> set[str]:
    """Names of limits that no request was found for that keeps all others."""
    return {limit.name for limit in _all_limits(profile)} - {limit.name for limit in documented_limits(profile)}
