"""The partitions and QOS that a twin has by its profile, and which rules of the profile need more than Slurm's own limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import Partition, Qos
from tests.twin.shape import DEFAULT_QOS, qos_name

PARTITION = "batch"
"""The partition of jobs that name none, where the profile lets them; only this one is Slurm's default without being called so."""


QOS_LIMITS = ("max_nodes", "max_walltime_min", "max_gpus", "max_cpus")


@dataclass(frozen=True, kw_only=True)
class TwinPartition:
    """One partition of the twin, with everything that slurm.conf says of it but its nodes' names."""

    name: str
    node_types: tuple[str, ...]
    is_default: bool
    limits: Partition
    qos: str | None
    """The partition's own QOS, whose limits hold for every job in it that has none of its own."""
    allowed_qos: tuple[str, ...] | None
    """None: jobs in it may ask for any QOS."""


def partitions(profile: ClusterProfile) -> list[TwinPartition]:
    """In the order in which the profile names them."""
    return [_partition(profile, name) for name in _names(profile)]


def _named(profile: ClusterProfile) -> list[str]:
    """Partitions that the profile names."""
    rules = profile.slurm
    named = [
        *rules.partitions,
        rules.partition,
        *(kind.partition for kind in profile.node_types.values()),
        *(rule.partition for rule in rules.qos),
    ]
    return list(dict.fromkeys(name for name in named if name is not None))


def _names(profile: ClusterProfile) -> list[str]:
    rules, names = profile.slurm, _named(profile)
    is_unnamed = not rules.partition and not rules.partitions and any(rule.partition is None for rule in rules.qos)
    free = [key for key, kind in profile.node_types.items() if kind.partition is None]
    return [*names, PARTITION] if is_unnamed and free else names


def _partition(profile: ClusterProfile, name: str) -> TwinPartition:
    rules = profile.slurm
    given = rules.partitions.get(name, Partition())
    node_types = partition_types(profile, name)
    holding = [rule for rule in rules.qos if rule.partition in (None, name)]
    usable = list(dict.fromkeys(qos_name(rule) for rule in holding))
    if given.qos:
        usable = [qos for qos in usable if qos in (DEFAULT_QOS, *given.qos)]
    return TwinPartition(
        name=name,
        node_types=node_types,
        is_default=given.default is True or (name == PARTITION and name not in _named(profile)),
        limits=dataclasses.replace(
            given,
            max_walltime_min=given.max_walltime_min or _longest_min(holding),
            default_walltime_min=given.default_walltime_min or rules.default_walltime_min,
            max_mb_per_core=given.max_mb_per_core or _max_mb_per_core(profile, node_types),
            default_mb_per_core=given.default_mb_per_core or rules.default_mb_per_core,
        ),
        qos=partition_qos(name) if _own_rule(profile, name) else None,
        allowed_qos=None if {DEFAULT_QOS, *map(qos_name, rules.qos)} <= set(usable) else tuple(usable),
    )


def partition_types(profile: ClusterProfile, name: str) -> tuple[str, ...]:
    """The types of its nodes: those the partition names and those that name it, else those that its rules name, else all that
    have no partition of their own.
    """
    given = profile.slurm.partitions.get(name)
    own = [key for key, kind in profile.node_types.items() if kind.partition == name]
    if given is not None:
        return tuple(dict.fromkeys((*(given.node_types or profile.node_types), *own)))
    ruled = [key for rule in profile.slurm.qos if rule.partition == name for key in rule.node_types]
    free = [key for key, kind in profile.node_types.items() if kind.partition is None]
    return tuple(dict.fromkeys(own or ruled or free or profile.node_types))


def _longest_min(rules: Sequence[Qos]) -> int | None:
    """The longest job that any of the rules allows, minutes; None as soon as one has no limit."""
    return _largest(rule.max_walltime_min for rule in rules)


def _largest(limits: Iterable[int | None]) -> int | None:
    values = list(limits)
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _max_mb_per_core(profile: ClusterProfile, node_types: Sequence[str]) -> int | None:
    kinds = [profile.node_types[key] for key in node_types]
    return _largest(kind.max_mb_per_core or profile.slurm.max_mb_per_core for kind in kinds)


def partition_qos(partition: str) -> str:
    """The name of a partition's own QOS."""
    return f"part_{partition}"


@dataclass(frozen=True, kw_only=True)
class TwinQos:
    """One QOS of the twin: its name in Slurm and the limits that Slurm's accounting holds."""

    name: str
    limits: Qos
    """Of several rules with one name the widest limits: the rest is for the job_submit plug-in."""
    is_users: bool
    """Whether jobs may ask for it; a partition's own QOS is nobody's."""


def twin_qos(profile: ClusterProfile) -> list[TwinQos]:
    """The default QOS, those of partitions, and those that rules name."""
    rules, plugins = profile.slurm.qos, plugin_rules(profile)
    default = next((rule for rule in rules if rule.name is None and rule.partition is None and rule not in plugins), Qos())
    names = dict.fromkeys(rule.name for rule in rules if rule.name is not None)
    own = [(name, rule) for name in _names(profile) if (rule := _own_rule(profile, name))]
    return [
        TwinQos(name=DEFAULT_QOS, limits=default, is_users=True),
        *(TwinQos(name=partition_qos(name), limits=rule, is_users=False) for name, rule in own),
        *(TwinQos(name=name, limits=_widest([rule for rule in rules if rule.name == name]), is_users=True) for name in names),
    ]


def _own_rule(profile: ClusterProfile, partition: str) -> Qos | None:
    """The rule without a name that a partition's own QOS holds."""
    plugins = plugin_rules(profile)
    own = (rule for rule in profile.slurm.qos if rule.name is None and rule.partition == partition)
    return next((rule for rule in own if rule not in plugins), None)


def _widest(rules: Sequence[Qos]) -> Qos:
    return dataclasses.replace(
        rules[0],
        min_nodes=min(rule.min_nodes for rule in rules),
        max_nodes=_largest(rule.max_nodes for rule in rules),
        max_walltime_min=_longest_min(rules),
        max_gpus=_largest(rule.max_gpus for rule in rules),
        max_cpus=_largest(rule.max_cpus for rule in rules),
    )


def plugin_rules(profile: ClusterProfile) -> list[Qos]:
    """The rules that accounting cannot hold: several of one name, one for some of a partition's node types only, or one that a
    QOS would take over as it has no such limit of its own.
    """
    anywhere = {rule.name for rule in profile.slurm.qos if rule.name is not None or rule.partition is None}
    groups: dict[tuple[str | None, str | None], list[Qos]] = {}
    for rule in profile.slurm.qos:
        groups.setdefault((rule.name, None if rule.name in anywhere else rule.partition), []).append(rule)
    return [rule for rules in groups.values() if not _is_expressible(profile, rules) for rule in rules]


def _is_expressible(profile: ClusterProfile, rules: Sequence[Qos]) -> bool:
    return len(rules) == 1 and _is_for_all_types(profile, rules[0]) and not _is_taken_over(profile, rules[0])


def _is_taken_over(profile: ClusterProfile, rule: Qos) -> bool:
    """A limit of a partition's own QOS holds for each QOS in it that has no such limit."""
    if rule.name is not None or rule.partition is None:
        return False
    others = [other for other in profile.slurm.qos if other.name is not None and other.partition in (None, rule.partition)]
    return any(getattr(rule, key) is not None and getattr(other, key) is None for other in others for key in QOS_LIMITS)


def _is_for_all_types(profile: ClusterProfile, rule: Qos) -> bool:
    names = [rule.partition] if rule.partition else _names(profile)
    there = {key for name in names for key in partition_types(profile, name)}
    return not rule.node_types or there <= set(rule.node_types)
