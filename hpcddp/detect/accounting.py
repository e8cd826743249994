"""QOS and associations as `sacctmgr -nP` lists them."""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.detect.fields import NO_LIMIT, integer, limit, names, real_number, smallest, tres, word

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
