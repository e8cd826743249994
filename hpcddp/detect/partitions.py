"""Partitions as `scontrol --oneliner show partitions` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.detect.fields import NO_LIMIT, integer, limit, names, pairs, word


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
