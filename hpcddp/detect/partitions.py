"""Partitions as `scontrol --oneliner show partitions` lists them, QOS and associations as `sacctmgr -nP` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.detect.fields import NO_LIMIT, integer, limit, names, pairs, real_number, smallest, tres, word


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


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "YES"


def _all_or(value: str | None) -> tuple[str, ...] | None:
    """ALL as none in particular."""
    return () if value == "ALL" else names(value)


def _per_cpu(found: Mapping[str, str], which: str) -> int | None:
    """A limit per node is none per CPU."""
    if f"{which}MemPerCPU" in found:
        return limit(found[f"{which}MemPerCPU"])
    return NO_LIMIT if f"{which}MemPerNode" in found else None


QOS_FORMAT = "format=Name,MinTRES,MaxTRES,MaxTRESPU,MaxWall,MaxSubmitPU,Priority,UsageFactor"
ASSOCIATION_FORMAT = "format=Account,Partition,QOS,DefaultQOS,MaxSubmit,GrpSubmit"


@dataclass(frozen=True, kw_only=True)
class LiveQos:
    """The limits of one QOS; None: Slurm does not say; NO_LIMIT: it says that there is none."""

    name: str
    min_nodes: int | None = None
    max_nodes: int | None = None
    max_cpus: int | None = None
    max_gpus: int | None = None
    max_walltime_min: int | None = None
    max_cpus_per_user: int | None = None
    max_gpus_per_user: int | None = None
    max_jobs_per_user: int | None = None
    """Waiting or running."""
    priority: int | None = None
    usage_factor: float | None = None
    """What its jobs are charged, times the usual."""


@dataclass(frozen=True, kw_only=True)
class Association:
    """An account that the user belongs to."""

    account: str
    partition: str | None = None
    """The only one that it holds in; None: all."""
    qos: tuple[str, ...] | None = None
    """Those that the user may ask for."""
    default_qos: str | None = None
    max_jobs: int | None = None
    """Waiting or running."""


def qos_of_text(text: str) -> tuple[LiveQos, ...]:
    """From `sacctmgr -nP show qos` with QOS_FORMAT."""
    return tuple(_qos_of_columns(line.split("|")) for line in text.splitlines() if line.count("|") == QOS_FORMAT.count(","))


def associations_of_text(text: str) -> tuple[Association, ...]:
    """From `sacctmgr -nP show assoc` with ASSOCIATION_FORMAT."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(_association_of_columns(row) for row in rows if len(row) == ASSOCIATION_FORMAT.count(",") + 1 and row[0])


def _qos_of_columns(columns: list[str]) -> LiveQos:
    name, least, most, per_user, wall, jobs, priority, factor = columns
    return LiveQos(
        name=name,
        min_nodes=_count(least, "node"),
        max_nodes=_count(most, "node"),
        max_cpus=_count(most, "cpu"),
        max_gpus=_count(most, "gres/gpu"),
        max_walltime_min=limit(wall),
        max_cpus_per_user=_count(per_user, "cpu"),
        max_gpus_per_user=_count(per_user, "gres/gpu"),
        max_jobs_per_user=limit(jobs),
        priority=integer(priority),
        usage_factor=real_number(factor),
    )


def _count(resources: str, name: str) -> int:
    return tres(resources).get(name, NO_LIMIT)


def _association_of_columns(columns: list[str]) -> Association:
    account, partition, qos, default, most, group = columns
    return Association(
        account=account,
        partition=word(partition),
        qos=names(qos),
        default_qos=word(default),
        max_jobs=smallest(limit(most), limit(group)),
    )
