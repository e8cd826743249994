"""The `slurm` part of a profile beside partitions, QOS and configuration of the live Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import Partition, Qos, SlurmRules
from hpcddp.detect.compare_nodes import FieldFinding, NodesByType, judge_field, judge_limit, partitions_of
from hpcddp.detect.fields import NO_LIMIT
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import LiveNodeType
from hpcddp.detect.partitions import LivePartition, LiveQos
from hpcddp.detect.rules import (
    LIMITS,
    OF_ALL,
    PartitionLimits,
    always_exclusive,
    default_qos,
    most_threads,
    partition_limits,
    qos_limits,
)

SILENT = "not in Slurm's answers"
PLUG_IN = "Slurm has one QOS of that name; a site's plug-in makes several rules of it"
NO_QOS = "sacctmgr lists no QOS"


def compare_partitions(
    profile: ClusterProfile, live: LiveSlurm, types: Sequence[LiveNodeType], found: NodesByType
) -> Iterator[FieldFinding]:
    """The partition that jobs go to, or each of several."""
    rules = profile.slurm
    if live.partitions is None:
        yield FieldFinding(field="slurm.partitions" if rules.partitions else "slurm.partition", verdict="unknown", why=SILENT)
        return
    there = {partition.name: partition for partition in live.partitions}
    for name, said in rules.partitions.items():
        if name in there:
            yield from _partition(profile, name, said, partition_limits(live, there[name], types), types)
            yield from _served(said, there[name], found)
        else:
            yield FieldFinding(field=f"slurm.partitions.{name}", verdict="differs", profile=name, slurm=f"has {_listed(there)}")
    if rules.partition is not None:
        known = rules.partition if rules.partition in there else _listed(there)
        yield judge_field("slurm.partition", rules.partition, [known], SILENT)
    used = _used(profile, live)
    exclusive = always_exclusive(used, types)
    yield judge_field("slurm.always_exclusive", bool(rules.always_exclusive), [exclusive], SILENT)
    plain = [partition_limits(live, each, types) for each in used if each.name not in rules.partitions]
    yield from _limits(profile, "slurm", rules, plain, types) if plain else ()


def _limits(
    profile: ClusterProfile,
    path: str,
    said: SlurmRules | Partition,
    limits: Sequence[PartitionLimits],
    types: Sequence[LiveNodeType],
) -> Iterator[FieldFinding]:
    """Those of a partition. Slurm's memory per CPU may have been rounded down from the profile's per core."""
    smt = most_threads(types) or 1
    for field in LIMITS if isinstance(said, Partition) else OF_ALL:
        value, found = getattr(said, field), [getattr(each, field) for each in limits]
        if field.endswith("_mb_per_core"):
            found = [value if value and each and 0 <= value - each < smt else each for each in found]
        yield judge_limit(profile, f"{path}.{field}", value, found, SILENT)


def compare_own_memory(profile: ClusterProfile, live: LiveSlurm, found: NodesByType) -> Iterator[FieldFinding]:
    """Of node types with a limit of their own; Slurm counts it per CPU."""
    there = {partition.name: partition for partition in live.partitions or ()}
    for key, kind in profile.node_types.items():
        caps = [there[name].max_mb_per_cpu for name in sorted(partitions_of(profile, key)) if name in there]
        smts = [node.smt for node in found[key]]
        limits = [cap * smt for cap in caps if cap is not None for smt in smts if smt is not None]
        if kind.max_mb_per_core is not None:
            yield judge_limit(profile, f"node_types.{key}.max_mb_per_core", kind.max_mb_per_core, limits, SILENT)


def _listed(there: object) -> str:
    return ", ".join(sorted(there)) if isinstance(there, dict) else ""


def _used(profile: ClusterProfile, live: LiveSlurm) -> list[LivePartition]:
    """The partitions that jobs of the profile go to; where it names none, Slurm's default one."""
    names = {name for key in profile.node_types for name in partitions_of(profile, key)}
    named = [partition for partition in live.partitions or () if partition.name in names]
    return named if names else [partition for partition in live.partitions or () if partition.default]


def _partition(
    profile: ClusterProfile, name: str, said: Partition, limits: PartitionLimits, types: Sequence[LiveNodeType]
) -> Iterator[FieldFinding]:
    path = f"slurm.partitions.{name}"
    least = None if limits.min_nodes is None else max(1, limits.min_nodes)
    yield judge_limit(profile, f"{path}.min_nodes", said.min_nodes, [least, NO_LIMIT] if least == 1 else [least], SILENT)
    yield from _limits(profile, path, said, [limits], types)


def _served(said: Partition, live: LivePartition, found: NodesByType) -> Iterator[FieldFinding]:
    """Which types it has nodes of, whether it is the default, which QOS it allows."""
    path = f"slurm.partitions.{live.name}"
    if said.default is not None:
        yield judge_field(f"{path}.default", said.default, [live.default], SILENT)
    there = sorted(key for key, nodes in found.items() if any(live.name in (node.partitions or ()) for node in nodes))
    if said.node_types and there:
        words = ", ".join(sorted(said.node_types))
        yield judge_field(f"{path}.node_types", words, [", ".join(there)], SILENT)
    if said.qos and live.allowed_qos is not None:
        missing = sorted(set(said.qos) - set(live.allowed_qos)) if live.allowed_qos else []
        words = ", ".join(said.qos)
        yield judge_field(f"{path}.qos", words, [", ".join(live.allowed_qos) if missing else words], SILENT)


def compare_qos(profile: ClusterProfile, live: LiveSlurm, types: Sequence[LiveNodeType]) -> Iterator[FieldFinding]:
    """Each rule beside the QOS of that name and the partitions that it holds in."""
    rules = profile.slurm.qos
    counts = Counter((rule.name, rule.partition) for rule in rules)
    of_plug_in = {rule.name for rule in rules if counts[rule.name, rule.partition] > 1 or rule.node_types}
    for i, rule in enumerate(rules):
        path = f"slurm.qos.{i}"
        if rule.name in of_plug_in:
            yield FieldFinding(field=path, verdict="unknown", profile=rule.name, why=PLUG_IN)
            continue
        yield from _rule(profile, path, rule, live, types)


def _rule(
    profile: ClusterProfile, path: str, rule: Qos, live: LiveSlurm, types: Sequence[LiveNodeType]
) -> Iterator[FieldFinding]:
    if rule.name is not None:
        if not live.qos:
            yield FieldFinding(field=f"{path}.name", verdict="unknown", profile=rule.name, why=NO_QOS)
        else:
            names = {qos.name for qos in live.qos}
            yield judge_field(f"{path}.name", rule.name, [rule.name if rule.name in names else ", ".join(sorted(names))], NO_QOS)
            if rule.name not in names:
                return
    qos = _qos_of(rule, live)
    if qos is None:
        yield FieldFinding(field=path, verdict="unknown", profile=rule.name, why=NO_QOS)
        return
    named = [each for each in live.partitions or () if each.name == rule.partition]
    limits = [partition_limits(live, each, types) for each in (named if rule.partition else _used(profile, live))]
    shared = [qos_limits(qos, each) for each in limits]
    for field, own in qos_limits(qos, None).items():
        said = None if field == "min_nodes" and rule.min_nodes == 1 else getattr(rule, field)
        observed = [*([each[field] for each in shared] or [own]), *([own] if own else [])]
        if said is None and profile.slurm.partitions:  # the partitions' own limits are in their table
            observed = [own]
        yield judge_limit(profile, f"{path}.{field}", said, observed, NO_QOS)


def _qos_of(rule: Qos, live: LiveSlurm) -> LiveQos | None:
    """The QOS of the rule's name, or the default one; without accounting one without limits."""
    if live.has_accounting is False:
        free = dict.fromkeys(("min_nodes", "max_nodes", "max_walltime_min", "max_gpus", "max_cpus"), NO_LIMIT)
        return LiveQos(name=rule.name or "", **free)
    return next((each for each in live.qos or () if each.name == rule.name), None) if rule.name else default_qos(live)


def compare_settings(profile: ClusterProfile, live: LiveSlurm, types: Sequence[LiveNodeType]) -> Iterator[FieldFinding]:
    """What a user may have, and the controller's own limits."""
    rules, smt = profile.slurm, most_threads(types)
    qos = _qos_of(rules.qos[0], live) if rules.qos else default_qos(live)
    gpus, cpus = (qos.max_gpus_per_user, qos.max_cpus_per_user) if qos else (None, None)
    cores = NO_LIMIT if cpus == NO_LIMIT else cpus // smt if cpus and smt else None
    yield judge_limit(profile, "slurm.max_gpus_per_user", rules.max_gpus_per_user, [gpus], NO_QOS)
    yield judge_limit(profile, "slurm.max_cores_per_user", rules.max_cores_per_user, [cores], NO_QOS)
    if rules.max_array_size:
        why = "not in scontrol show config"
        yield judge_field("slurm.max_array_size", rules.max_array_size, [live.number("MaxArraySize")], why)
