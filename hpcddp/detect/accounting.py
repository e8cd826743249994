"""QOS and associations as sacctmgr lists them, in text and in JSON (from 23.02 on)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.detect.fields import NO_LIMIT, json_at, json_limit, limit, names, tres, word

Resources = Mapping[str, int] | None
"""Counts by name; None: Slurm does not say."""

QOS_FORMAT = "format=Name,MinTRES,MaxTRES,MaxWall,MaxTRESPU,MaxSubmitPU"
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
    name, least, most, wall, per_user, jobs = columns
    return _qos(name, (tres(least), tres(most), tres(per_user)), wall_min=limit(wall), jobs=limit(jobs))


def _qos_of_json(entry: Mapping[str, object]) -> LiveQos:
    paths = ("limits/min/tres/per/job", "limits/max/tres/per/job", "limits/max/tres/per/user")
    least, most, per_user = (tres(json_at(entry, path)) for path in paths)
    return _qos(
        str(entry["name"]),
        (least, most, per_user),
        wall_min=json_limit(json_at(entry, "limits/max/wall_clock/per/job")),
        jobs=json_limit(json_at(entry, "limits/max/jobs/per/user")),
    )


def _qos(name: str, resources: tuple[Resources, Resources, Resources], *, wall_min: int | None, jobs: int | None) -> LiveQos:
    """`resources`: at least and at most of a job, and at most of a user."""
    least, most, per_user = resources
    return LiveQos(
        name=name,
        min_nodes=_of(least, "node"),
        max_nodes=_of(most, "node"),
        max_cpus=_of(most, "cpu"),
        max_gpus=_of(most, "gres/gpu"),
        max_walltime_min=wall_min,
        max_cpus_per_user=_of(per_user, "cpu"),
        max_gpus_per_user=_of(per_user, "gres/gpu"),
        max_jobs_per_user=jobs,
    )


def _of(resources: Resources, name: str) -> int | None:
    return None if resources is None else resources.get(name, NO_LIMIT)


def _association_of_columns(columns: list[str]) -> Association:
    account, partition, qos, default, most, group = columns
    return Association(
        account=account,
        partition=word(partition),
        qos=names(qos),
        default_qos=word(default),
        max_jobs=_smaller(limit(most), limit(group)),
    )


def _association_of_json(entry: Mapping[str, object]) -> Association:
    most, group = (json_limit(json_at(entry, path)) for path in ("max/jobs/total", "max/jobs/per/submitted"))
    return Association(
        account=str(entry["account"]),
        partition=word(entry.get("partition")),
        qos=names(entry.get("qos")),
        default_qos=word(json_at(entry, "default/qos")),
        max_jobs=_smaller(most, group),
    )


def _smaller(one: int | None, other: int | None) -> int | None:
    """Of two limits that hold at the same time."""
    numbers = [each for each in (one, other) if each]
    return min(numbers) if numbers else NO_LIMIT if NO_LIMIT in (one, other) else None
