"""QOS and associations as sacctmgr lists them, in text and in JSON (from 23.02 on)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.detect.fields import NO_LIMIT, integer, json_at, json_limit, limit, names, number, smallest, tres, word

Resources = Mapping[str, int] | None
"""Counts by name; None: Slurm does not say."""

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


def qos_of_json(document: object) -> tuple[LiveQos, ...]:
    """From `sacctmgr --json show qos`; 23.02 calls the list QOS."""
    return tuple(_qos_of_json(entry) for entry in _entries(document, "qos", "QOS") if word(entry.get("name")))


def associations_of_text(text: str) -> tuple[Association, ...]:
    """From `sacctmgr -nP show assoc` with ASSOCIATION_FORMAT."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(_association_of_columns(row) for row in rows if len(row) == ASSOCIATION_FORMAT.count(",") + 1 and row[0])


def associations_of_json(document: object) -> tuple[Association, ...]:
    """From `sacctmgr --json show assoc`."""
    return tuple(_association_of_json(entry) for entry in _entries(document, "associations") if word(entry.get("account")))


def _entries(document: object, *keys: str) -> list[Mapping[str, object]]:
    found = [document.get(key) for key in keys] if isinstance(document, Mapping) else []
    return [entry for entries in found if isinstance(entries, list) for entry in entries if isinstance(entry, Mapping)]


def _qos_of_columns(columns: list[str]) -> LiveQos:
    name, least, most, per_user, wall, jobs, priority, factor = columns
    limits = _resources(tres(least), tres(most), tres(per_user))
    return LiveQos(
        name=name,
        **limits,
        max_walltime_min=limit(wall),
        max_jobs_per_user=limit(jobs),
        priority=integer(priority),
        usage_factor=number(factor),
    )


def _qos_of_json(entry: Mapping[str, object]) -> LiveQos:
    paths = ("limits/min/tres/per/job", "limits/max/tres/per/job", "limits/max/tres/per/user")
    least, most, per_user = (tres(json_at(entry, path)) for path in paths)
    return LiveQos(
        name=str(entry["name"]),
        **_resources(least, most, per_user),
        max_walltime_min=json_limit(json_at(entry, "limits/max/wall_clock/per/job")),
        max_jobs_per_user=json_limit(json_at(entry, "limits/max/jobs/per/user")),
        priority=json_limit(entry.get("priority")),
        usage_factor=number(json_at(entry, "usage_factor/number")),
    )


def _resources(least: Resources, most: Resources, per_user: Resources) -> dict[str, int | None]:
    """At least and at most of a job, and at most of a user."""
    return {
        "min_nodes": _of(least, "node"),
        "max_nodes": _of(most, "node"),
        "max_cpus": _of(most, "cpu"),
        "max_gpus": _of(most, "gres/gpu"),
        "max_cpus_per_user": _of(per_user, "cpu"),
        "max_gpus_per_user": _of(per_user, "gres/gpu"),
    }


def _of(resources: Resources, name: str) -> int | None:
    return None if resources is None else resources.get(name, NO_LIMIT)


def _association_of_columns(columns: list[str]) -> Association:
    account, partition, qos, default, most, group = columns
    return Association(
        account=account,
        partition=word(partition),
        qos=names(qos),
        default_qos=word(default),
        max_jobs=smallest(limit(most), limit(group)),
    )


def _association_of_json(entry: Mapping[str, object]) -> Association:
    most, group = (json_limit(json_at(entry, path)) for path in ("max/jobs/total", "max/jobs/per/submitted"))
    return Association(
        account=str(entry["account"]),
        partition=word(entry.get("partition")),
        qos=names(entry.get("qos")),
        default_qos=word(json_at(entry, "default/qos")),
        max_jobs=smallest(most, group),
    )
