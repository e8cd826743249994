"""Partitions as `scontrol show partitions` lists them, in text and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from hpcddp.detect.fields import NO_LIMIT, integer, json_at, json_limit, limit, names, pairs, raw_memory_per_cpu, word


@dataclass(frozen=True, kw_only=True)
class LivePartition:
    """One partition; None: Slurm does not say; NO_LIMIT: it says that there is none."""

    name: str
    default: bool | None = None
    """Whether Slurm takes it for a job that names none."""
    hidden: bool | None = None
    """Whether sinfo shows it with `--all` only."""
    root_only: bool | None = None
    always_exclusive: bool | None = None
    """Whether a job there has its nodes to itself (OverSubscribe=EXCLUSIVE)."""
    is_up: bool | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    max_walltime_min: int | None = None
    default_walltime_min: int | None = None
    max_mb_per_cpu: int | None = None
    default_mb_per_cpu: int | None = None
    allowed_accounts: tuple[str, ...] | None = None
    """Empty: all."""
    denied_accounts: tuple[str, ...] | None = None
    allowed_qos: tuple[str, ...] | None = None
    """Empty: all."""
    qos: str | None = None
    """The QOS whose limits hold for all its jobs."""

    def allows(self, accounts: tuple[str, ...]) -> bool:
        """Whether someone with these accounts may submit to it, as far as Slurm says; nobody's accounts are known: yes."""
        if self.root_only:
            return False
        if not accounts:
            return True
        allowed = set(self.allowed_accounts or accounts) - set(self.denied_accounts or ())
        return bool(allowed & set(accounts))


def partitions_of_text(text: str) -> tuple[LivePartition, ...]:
    """From `scontrol --oneliner show partitions`."""
    return tuple(_of_line(pairs(line)) for line in text.splitlines() if line.startswith("PartitionName="))


def partitions_of_json(document: object) -> tuple[LivePartition, ...]:
    """From `scontrol --json show partitions`. Which one is the default is in it from 26.05 on (data_parser v0.0.45)."""
    entries = document.get("partitions") if isinstance(document, Mapping) else None
    found = entries if isinstance(entries, list) else []
    return tuple(_of_json(entry) for entry in found if isinstance(entry, Mapping) and word(entry.get("name")))


def filled_in(first: tuple[LivePartition, ...], second: tuple[LivePartition, ...]) -> tuple[LivePartition, ...]:
    """The first answer, with what it does not say from the second; partitions of either."""
    others = {partition.name: partition for partition in second}
    both = [_filled(partition, others.pop(partition.name, None)) for partition in first]
    return (*both, *others.values())


def _filled(partition: LivePartition, other: LivePartition | None) -> LivePartition:
    if other is None:
        return partition
    unknown = [each.name for each in fields(LivePartition) if getattr(partition, each.name) is None]
    return replace(partition, **{name: getattr(other, name) for name in unknown})


def _of_line(found: Mapping[str, str]) -> LivePartition:
    return LivePartition(
        name=found["PartitionName"],
        default=_yes(found.get("Default")),
        hidden=_yes(found.get("Hidden")),
        root_only=_yes(found.get("RootOnly")),
        always_exclusive=found["OverSubscribe"].startswith("EXCLUSIVE") if "OverSubscribe" in found else None,
        is_up=found["State"] == "UP" if "State" in found else None,
        min_nodes=integer(found.get("MinNodes")),
        max_nodes=limit(found.get("MaxNodes")),
        max_walltime_min=limit(found.get("MaxTime")),
        default_walltime_min=limit(found.get("DefaultTime")),
        max_mb_per_cpu=_per_cpu(found, "Max"),
        default_mb_per_cpu=_per_cpu(found, "Def"),
        allowed_accounts=_all_or(found.get("AllowAccounts")),
        denied_accounts=names(found.get("DenyAccounts", "")),
        allowed_qos=_all_or(found.get("AllowQos")),
        qos=word(found.get("QoS")),
    )


def _of_json(entry: Mapping[str, object]) -> LivePartition:
    flags = names(entry.get("flags"))
    state, shares = json_at(entry, "partition/state"), integer(json_at(entry, "maximums/shares"))
    return LivePartition(
        name=str(entry["name"]),
        default=None if flags is None else "DEFAULT" in flags,
        hidden=None if flags is None else "HIDDEN" in flags,
        root_only=None if flags is None else "ROOT_ONLY" in flags,
        always_exclusive=None if shares is None else shares == 0,
        is_up=None if state is None else "UP" in (names(state) or ()),
        min_nodes=json_limit(json_at(entry, "minimums/nodes")),
        max_nodes=json_limit(json_at(entry, "maximums/nodes")),
        max_walltime_min=json_limit(json_at(entry, "maximums/time")),
        default_walltime_min=json_limit(json_at(entry, "defaults/time")),
        max_mb_per_cpu=_json_per_cpu(entry, "maximums"),
        default_mb_per_cpu=_json_per_cpu(entry, "defaults"),
        allowed_accounts=_all_or(json_at(entry, "accounts/allowed")),
        denied_accounts=names(json_at(entry, "accounts/deny")),
        allowed_qos=_all_or(json_at(entry, "qos/allowed")),
        qos=word(json_at(entry, "qos/assigned")),
    )


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "YES"


def _all_or(value: object) -> tuple[str, ...] | None:
    """ALL as none in particular."""
    return () if value == "ALL" else names(value)


def _per_cpu(found: Mapping[str, str], which: str) -> int | None:
    """A limit per node is none per CPU."""
    if f"{which}MemPerCPU" in found:
        return limit(found[f"{which}MemPerCPU"])
    return NO_LIMIT if f"{which}MemPerNode" in found else None


def _json_per_cpu(entry: Mapping[str, object], which: str) -> int | None:
    """24.05 and later name it; before, there is only the raw number."""
    named = json_at(entry, f"{which}/partition_memory_per_cpu")
    return raw_memory_per_cpu(json_at(entry, f"{which}/memory_per_cpu")) if named is None else json_limit(named)
