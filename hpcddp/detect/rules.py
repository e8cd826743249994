"""What Slurm's partitions, QOS and associations come to for a job, in the terms of a profile. NO_LIMIT stays NO_LIMIT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.detect.fields import NO_LIMIT, smallest
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import LiveNodeType
from hpcddp.detect.nodes import LiveNode
from hpcddp.detect.partitions import LivePartition, LiveQos

USUAL_QOS = "normal"
"""The QOS that Slurm makes itself, and that jobs have which ask for none, unless sacctmgr says otherwise."""

WITHOUT_ENFORCEMENT = {"none", "safe", "wckeys", "nojobs", "nosteps"}
"""Words of AccountingStorageEnforce by which any account is taken (slurm.conf(5))."""


LIMITS = {
    "max_nodes": ("MaxNodes", "no limit"),
    "max_walltime_min": ("MaxTime", "no limit"),
    "default_walltime_min": ("DefaultTime", "none: the limit itself"),
    "max_mb_per_core": ("MaxMemPerCPU", "no limit"),
    "default_mb_per_core": ("DefMemPerCPU", "none"),
}
"""Of a partition, by the keys of a profile: Slurm's word, and what it means that there is none."""

OF_ALL = ("default_walltime_min", "max_mb_per_core", "default_mb_per_core")
"""Those that `slurm` has where it has one partition."""


@dataclass(frozen=True, kw_only=True)
class PartitionLimits:
    """What a job gets in a partition; None: Slurm does not say; NO_LIMIT: it says that there is none."""

    min_nodes: int | None
    max_nodes: int | None
    max_walltime_min: int | None
    default_walltime_min: int | None
    max_mb_per_core: int | None
    default_mb_per_core: int | None
    few_nodes: bool
    """Whether the limit on nodes is that it has no more of any type."""


def partition_limits(live: LiveSlurm, partition: LivePartition, types: Sequence[LiveNodeType]) -> PartitionLimits:
    """Those of the partition and of its QOS. Slurm counts memory per CPU, a profile per physical core."""
    rule = next((qos for qos in live.qos or () if qos.name == partition.qos), None)
    stated = smallest(partition.max_nodes, rule.max_nodes if rule else None)
    there, all_nodes = _nodes_there(partition, types)
    least = smallest_needed(partition.min_nodes, rule.min_nodes if rule else None)
    few = (least or 0) <= there < all_nodes and there > 0 and (not stated or there < stated)
    smt = smt_of(partition, types)
    return PartitionLimits(
        min_nodes=least,
        max_nodes=there if few else stated,
        max_walltime_min=smallest(partition.max_walltime_min, rule.max_walltime_min if rule else None),
        default_walltime_min=partition.default_walltime_min,
        max_mb_per_core=_per_core(partition.max_mb_per_cpu, smt),
        default_mb_per_core=_per_core(partition.default_mb_per_cpu, smt),
        few_nodes=few,
    )


def qos_limits(qos: LiveQos | None, only: PartitionLimits | None) -> dict[str, int | None]:
    """A job's limits by a QOS and, where it is given, a partition; by the keys of a profile's rule. One node at least is none."""
    least = smallest_needed(qos.min_nodes if qos else None, only.min_nodes if only else None)
    return {
        "min_nodes": NO_LIMIT if least is not None and least <= 1 else least,
        "max_nodes": smallest(qos.max_nodes if qos else None, only.max_nodes if only else None),
        "max_walltime_min": smallest(qos.max_walltime_min if qos else None, only.max_walltime_min if only else None),
        "max_gpus": qos.max_gpus if qos else None,
        "max_cpus": qos.max_cpus if qos else None,
    }


def is_possible(limits: Mapping[str, int | None]) -> bool:
    """Whether any number of nodes keeps them."""
    return not limits["max_nodes"] or (limits["min_nodes"] or 1) <= limits["max_nodes"]


def smallest_needed(*needs: int | None) -> int | None:
    """Of least numbers that hold at the same time; None where none is known."""
    known = [each for each in needs if each is not None]
    return max(known) if known else None


def smt_of(partition: LivePartition, types: Sequence[LiveNodeType]) -> int | None:
    """CPUs per core of its nodes; the most, where they differ."""
    return most_threads(kind for kind in types if partition.name in kind.partitions)


def most_threads(types: Iterable[LiveNodeType]) -> int | None:
    """CPUs per core; None where no type says it."""
    return max((kind.first.smt for kind in types if kind.first.smt), default=None)


def _per_core(per_cpu: int | None, smt: int | None) -> int | None:
    if per_cpu == NO_LIMIT:
        return NO_LIMIT
    return None if per_cpu is None or smt is None else per_cpu * smt


def _nodes_there(partition: LivePartition, types: Sequence[LiveNodeType]) -> tuple[int, int]:
    """Of the type that it has most nodes of: how many there, and how many in all."""
    counts = [
        (sum(partition.name in (node.partitions or ()) for node in kind.nodes), len(kind.nodes))
        for kind in types
        if partition.name in kind.partitions
    ]
    return max(counts, default=(0, 0))


def my_accounts(live: LiveSlurm) -> tuple[str, ...]:
    """Accounts that the user belongs to; none where Slurm keeps or says none."""
    return tuple(dict.fromkeys(each.account for each in live.associations or ()))


def enforces_accounts(live: LiveSlurm) -> bool | None:
    """Whether a job without a valid account is refused."""
    if live.has_accounting is False:
        return False
    text = live.setting("AccountingStorageEnforce")
    if text is None:
        return None if live.config is None or "AccountingStorageEnforce" not in live.config else False
    return not set(text.lower().split(",")) <= WITHOUT_ENFORCEMENT


def my_partitions(live: LiveSlurm) -> list[LivePartition]:
    """Those that the user may submit to: the default one first, then by being shown, up, without need of a QOS, and large."""
    accounts, sizes, usual = my_accounts(live), node_counts(live.nodes or ()), default_qos(live)

    def rank(each: LivePartition) -> tuple[bool, bool, bool, bool, int]:
        needs_qos = usual is not None and bool(each.allowed_qos) and usual.name not in (each.allowed_qos or ())
        return (not each.default, bool(each.hidden), each.is_up is False, needs_qos, -sizes.get(each.name, 0))

    return sorted((partition for partition in live.partitions or () if partition.allows(accounts)), key=rank)


def counts_gpus(types: Iterable[LiveNodeType]) -> bool:
    """Whether Slurm knows of any GPU; where it does not, a job takes no option for them."""
    return any(kind.gpus for kind in types)


def always_exclusive(partitions: Sequence[LivePartition], types: Sequence[LiveNodeType]) -> bool | None:
    """Whether a job has its nodes alone in every partition with GPUs; in every one at all, where none has any."""
    there = {name for kind in types if kind.gpus for name in kind.partitions}
    said = [each.always_exclusive for each in partitions if each.name in there or not there]
    return None if None in said or not said else all(said)


def node_counts(nodes: Iterable[LiveNode]) -> dict[str, int]:
    """Partition -> its nodes."""
    counts: dict[str, int] = {}
    for node in nodes:
        for name in node.partitions or ():
            counts[name] = counts.get(name, 0) + 1
    return counts


def default_qos(live: LiveSlurm) -> LiveQos | None:
    """What a job has that asks for none."""
    named = next((each.default_qos for each in live.associations or () if each.default_qos), USUAL_QOS)
    return next((qos for qos in live.qos or () if qos.name == named), None)


def my_qos(live: LiveSlurm) -> list[LiveQos]:
    """Those that the user may ask for; all, where Slurm does not say whose they are."""
    lists = [each.qos for each in live.associations or () if each.qos is not None]
    allowed = {name for names in lists for name in names}
    return [qos for qos in live.qos or () if not lists or qos.name in allowed]


def named_qos(live: LiveSlurm, needed: str | None) -> list[LiveQos]:
    """Those that a job may name: all but the default one, unless it is `needed` that one is named."""
    usual = default_qos(live)
    return [qos for qos in my_qos(live) if needed is not None or usual is None or qos.name != usual.name]


def qos_to_try(live: LiveSlurm) -> list[str | None]:
    """None first: a job that names none; then the ones that charge and rank least, and of those the widest."""

    def rank(qos: LiveQos) -> tuple[float, float, float, float]:
        nodes, wall_min = qos.max_nodes or math.inf, qos.max_walltime_min or math.inf
        return (1.0 if qos.usage_factor is None else qos.usage_factor, qos.priority or 0, -nodes, -wall_min)

    return [None, *(qos.name for qos in sorted(my_qos(live), key=rank))]
