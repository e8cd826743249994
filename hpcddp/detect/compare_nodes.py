"""One field of a profile beside what Slurm says of it; the node types beside the nodes that Slurm lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.core.written_lists import expand_node_list
from hpcddp.detect.fields import NO_LIMIT, is_slice
from hpcddp.detect.nodes import LiveNode, node_list

FieldVerdict = Literal["agrees", "differs", "new", "unknown"]
"""new: the profile does not say it, Slurm does; unknown: Slurm does not say it."""

NONE = "no limit"


@dataclass(frozen=True, kw_only=True)
class FieldFinding:
    """A field with both values."""

    field: str
    """Dotted path in the profile."""
    verdict: FieldVerdict
    profile: object = None
    slurm: object = None
    why: str | None = None
    """Of an unknown one: why Slurm does not say it."""


def judge_field(field: str, said: object, observed: Sequence[object], why: str) -> FieldFinding:
    """What the profile says beside the values that Slurm has (several, where its nodes differ); None among them is unknown."""
    known = [value for value in dict.fromkeys(observed) if value is not None]
    slurm = known[0] if len(known) == 1 else ", ".join(map(str, known))
    if not known:
        return FieldFinding(field=field, verdict="unknown", profile=said, why=why)
    verdict: FieldVerdict = "agrees" if known == [said] else "new" if said is None else "differs"
    return FieldFinding(field=field, verdict=verdict, profile=said, slurm=slurm)


def judge_limit(profile: ClusterProfile, field: str, said: int | None, observed: Sequence[int | None], why: str) -> FieldFinding:
    """The same of a limit, of which there may be none; the first of the values is shown, any of them agrees. A profile's null
    is drift only where its fact says that there is none: with grade "?" or without a fact it is not known.
    """
    known = [value for value in observed if value is not None]
    if not known:
        return FieldFinding(field=field, verdict="unknown", profile=said, why=why)
    slurm = NONE if known[0] == NO_LIMIT else known[0]
    if (said or NO_LIMIT) in known:
        return FieldFinding(field=field, verdict="agrees", profile=said, slurm=slurm)
    fact = profile.facts.get(field)
    if said is None and (fact is None or fact.grade == "?"):
        return FieldFinding(field=field, verdict="new", slurm=slurm)
    return FieldFinding(field=field, verdict="differs", profile=NONE if said is None else said, slurm=slurm)


NodesByType = Mapping[str, Sequence[LiveNode]]

NOT_LISTED = "Slurm does not report it for these nodes"


def partitions_of(profile: ClusterProfile, key: str) -> frozenset[str]:
    """Where a job for that type may go; empty: the profile does not say."""
    kind, rules = profile.node_types[key], profile.slurm
    if kind.partition:
        return frozenset({kind.partition})
    serving = [name for name, each in rules.partitions.items() if not each.node_types or key in each.node_types]
    ruled = [rule.partition for rule in rules.qos if rule.partition and (not rule.node_types or key in rule.node_types)]
    return frozenset([*serving, *ruled] or ([rules.partition] if rules.partition else []))


def nodes_by_type(profile: ClusterProfile, nodes: Sequence[LiveNode]) -> NodesByType:
    """Each type's nodes: by name where the profile has names, else by what a job asks for them by."""
    found: dict[str, list[LiveNode]] = {}
    taken: set[str] = set()
    types = profile.node_types.items()  # those that say most of their nodes choose first
    for key, _ in sorted(types, key=lambda item: (not item[1].names, not item[1].constraint, not item[1].gres_type)):
        found[key] = _nodes_of(profile, key, [node for node in nodes if node.name not in taken])
        taken |= {node.name for node in found[key]}
    return found


def _nodes_of(profile: ClusterProfile, key: str, nodes: Sequence[LiveNode]) -> list[LiveNode]:
    """Where no node fits all that a job asks for, those that fit all but one thing: that is what differs."""
    kind, partitions = profile.node_types[key], partitions_of(profile, key)
    if kind.names is not None:
        names = set(_expanded(kind.names))
        return [node for node in nodes if node.name in names]
    tests: list[Callable[[LiveNode], bool]] = [
        lambda node: _has_constraint(node, kind.constraint),
        lambda node: _has_gpus(node, kind),
        lambda node: not partitions or bool(partitions & set(node.partitions or ())),
    ]
    for left_out in (None, *tests):
        fitting = [node for node in nodes if all(test(node) for test in tests if test is not left_out)]
        if fitting:
            return fitting
    return []


def _expanded(names: str) -> list[str]:
    try:
        return expand_node_list(names)
    except ValueError:  # not a list that Slurm would write
        return []


def _has_gpus(node: LiveNode, kind: NodeType) -> bool:
    if kind.gres_type is not None:
        return any(name == kind.gres_type for name, _ in node.gpus or ())
    return bool(node.gpus) or not kind.gpus


def _has_constraint(node: LiveNode, constraint: str | None) -> bool:
    """Whether its features are those of one of the alternatives (`a100&nvlink|h100`)."""
    if not constraint:
        return True
    alternatives = [set(re.findall(r"[^&()\[\]]+", part)) for part in constraint.split("|")]
    return any(words <= set(node.features or ()) for words in alternatives)


def compare_nodes(profile: ClusterProfile, nodes: Sequence[LiveNode] | None, why: str) -> Iterator[FieldFinding]:
    """Every field of every type, and nodes with GPUs that no type has."""
    if nodes is None:
        yield FieldFinding(field="node_types", verdict="unknown", why=why)
        return
    found = nodes_by_type(profile, nodes)
    for key in profile.node_types:
        yield from _compare_type(profile, key, found[key])
    yield from _unknown_nodes(profile, nodes, found)


def _compare_type(profile: ClusterProfile, key: str, nodes: Sequence[LiveNode]) -> Iterator[FieldFinding]:
    kind, path = profile.node_types[key], f"node_types.{key}"
    if not nodes:
        field = path if kind.names is None else f"{path}.names"
        yield FieldFinding(field=field, verdict="differs", profile=kind.names or kind.count or "described", slurm="no such node")
        return
    yield judge_field(f"{path}.count", kind.count, [len(nodes)], NOT_LISTED)
    yield _names(profile, key, nodes)
    observed: dict[str, list[object]] = {
        "sockets": [node.sockets or None for node in nodes],
        "physical_cores": [node.physical_cores or None for node in nodes],
        "smt": [node.smt for node in nodes],
        "memory_mb": [node.job_memory_mb or None for node in nodes],
    }
    for field, values in observed.items():
        yield judge_field(f"{path}.{field}", getattr(kind, field), values, NOT_LISTED)
    yield from _gpus(profile, key, nodes)
    yield from _features(profile, key, nodes)


def _names(profile: ClusterProfile, key: str, nodes: Sequence[LiveNode]) -> FieldFinding:
    """Whatever way the same names are written in."""
    said, there = profile.node_types[key].names, node_list(node.name for node in nodes)
    if said is None:
        return FieldFinding(field=f"node_types.{key}.names", verdict="new", slurm=there)
    if node_list(_expanded(said)) == there:
        there = said
    return judge_field(f"node_types.{key}.names", said, [there], NOT_LISTED)


def _gpus(profile: ClusterProfile, key: str, nodes: Sequence[LiveNode]) -> Iterator[FieldFinding]:
    """A site that takes no option for GPUs has no use for counting them."""
    kind, path = profile.node_types[key], f"node_types.{key}"
    if (kind.gpu_request or profile.slurm.gpu_request) == "none" and not any(node.gpus for node in nodes):
        why = "this Slurm counts no GPUs"
        yield FieldFinding(field=f"{path}.gpus", verdict="unknown", profile=kind.gpus, why=why)
        return
    counts = [None if node.gpus is None else sum(n for _, n in _requested_types(node, kind.gres_type)) for node in nodes]
    yield judge_field(f"{path}.gpus", kind.gpus, counts, NOT_LISTED)
    types = [name for node in nodes for name, _ in _requested_types(node, kind.gres_type)]
    if kind.gres_type is not None:
        yield judge_field(f"{path}.gres_type", kind.gres_type, [name or "no type" for name in types], NOT_LISTED)
    elif any(types):  # an untyped request fits typed GPUs, too
        words = ", ".join(sorted({name for name in types if name}))
        yield FieldFinding(field=f"{path}.gres_type", verdict="new", slurm=words)


def _requested_types(node: LiveNode, gres_type: str | None) -> list[tuple[str | None, int]]:
    """The type that the profile asks for where the node has it; else all of them, without MIG slices if it has whole GPUs."""
    there = list(node.gpus or ())
    full_gpus = [each for each in there if not is_slice(each[0])]
    return [each for each in there if each[0] == gres_type] or full_gpus or there


def _features(profile: ClusterProfile, key: str, nodes: Sequence[LiveNode]) -> Iterator[FieldFinding]:
    """Whether all nodes have the features that the profile asks for, and lie in the partition that it names."""
    kind, path = profile.node_types[key], f"node_types.{key}"
    if kind.constraint:
        lists = [None if node.features is None else ", ".join(node.features) or "no features" for node in nodes]
        fits = [_has_constraint(node, kind.constraint) for node in nodes]
        fitting = [kind.constraint if is_fit else words for is_fit, words in zip(fits, lists, strict=True)]
        yield judge_field(f"{path}.constraint", kind.constraint, fitting, NOT_LISTED)
    if kind.partition:
        lists = [None if node.partitions is None else ", ".join(node.partitions) or "none" for node in nodes]
        fits = [kind.partition in (node.partitions or ()) for node in nodes]
        inside = [kind.partition if is_fit else words for is_fit, words in zip(fits, lists, strict=True)]
        yield judge_field(f"{path}.partition", kind.partition, inside, NOT_LISTED)


def _unknown_nodes(profile: ClusterProfile, nodes: Sequence[LiveNode], found: NodesByType) -> Iterator[FieldFinding]:
    """Nodes with whole GPUs in a partition of the profile, of no type of it."""
    known = {node.name for same in found.values() for node in same}
    used = frozenset().union(*(partitions_of(profile, key) for key in profile.node_types)) if profile.node_types else frozenset()
    groups: dict[str, list[str]] = {}
    for node in nodes:
        is_used = not used or bool(used & set(node.partitions or ()))
        full_gpus = [(name, count) for name, count in node.gpus or () if not is_slice(name)]
        if node.name not in known and full_gpus and is_used:
            words = " and ".join(f"{count} gpu{f':{name}' if name else ''}" for name, count in full_gpus)
            groups.setdefault(words, []).append(node.name)
    for words, names in groups.items():
        yield FieldFinding(field="node_types", verdict="differs", profile="no type", slurm=f"{node_list(names)} ({words})")
