"""What a survey says in a profile's terms: values by path, and the lines that a profile lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.cluster.yaml_text import yaml_text
from hpcddp.core.job_records import Adapter, NodeSurvey, SurveyRecord
from hpcddp.core.schema import encode

SOURCE = "survey"
"""Key among a profile's sources."""

REMOTE = ("InfiniBand", "RoCE", "Slingshot")
"""Kinds of adapters that reach other nodes' memory."""


def survey_text(found: SurveyRecord, profile: ClusterProfile, node_type: str) -> str:
    """YAML of what the profile does not say, guesses, or says otherwise, with that beside it; empty where there is nothing."""
    note = f"{found.date}, {', '.join(node.host for node in found.nodes)}"
    document: dict[str, Any] = {"sources": {SOURCE: f"hpcddp clusters survey of {found.date}, job {found.job}"}}
    if software := software_words(found):
        document["sources"][SOURCE] += f", {software}"
    plain = encode(profile, keep_later=True)
    for path, value in survey_values(found, node_type).items():
        known, said = profile.facts.get(".".join(path)), _at(plain, path)
        if said == value and (known is None or known.grade != "?"):
            continue
        *parents, key = path
        part = document
        for parent in parents:
            part = part.setdefault(parent, {})
        without_source = f"; the profile has {said}, without a source" if known is None and said not in (None, {}) else ""
        part[key] = Fact(value=value, grade="A", source=SOURCE, note=note + without_source, conflicts=_others(known, value))
    return yaml_text(document) if len(document) > 1 else ""


def _at(plain: Any, path: tuple[str, ...]) -> object:
    for key in path:
        plain = plain.get(key) if isinstance(plain, dict) else None
    return plain


def _others(known: Fact | None, value: object) -> tuple[Fact, ...]:
    """What others than an earlier survey say instead."""
    facts = (replace(known, conflicts=()), *known.conflicts) if known is not None else ()
    return tuple(fact for fact in facts if fact.source != SOURCE and fact.value not in (None, value))


def survey_values(found: SurveyRecord, node_type: str) -> dict[tuple[str, ...], object]:
    """Paths of a profile; only what is known, and what all nodes agree on."""
    pairs = [dict(_of_node(node)) for node in found.nodes]
    common = {
        name: value for name, value in (pairs[0].items() if pairs else ()) if all(each.get(name) == value for each in pairs)
    }
    disks = [node.disk.read_gbs for node in found.nodes if node.disk and node.disk.read_gbs]
    if disks:
        common["local_disk_gbs"] = round(min(disks), 2)
    return {**{("node_types", node_type, *name.split(".")): value for name, value in common.items()}, **_fabric(found)}


def disagreements(found: SurveyRecord) -> Iterator[str]:
    """What nodes of one type say differently."""
    pairs = {node.host: dict(_of_node(node)) for node in found.nodes}
    for name in dict.fromkeys(name for each in pairs.values() for name in each):
        said = {host: each.get(name) for host, each in pairs.items()}
        if len({str(value) for value in said.values()}) > 1:
            yield f"{name}: {', '.join(f'{value} on {host}' for host, value in said.items())}"


def _of_node(node: NodeSurvey) -> Iterator[tuple[str, object]]:
    """Keys of a node type."""
    facts = node.node
    gpus = facts.gpus if facts else ()
    known = {
        "cpu": facts.cpu if facts else None,
        "sockets": node.sockets,
        "gpu": gpus[0].name if gpus else None,
        "gpu_memory_gb": round(gpus[0].memory_bytes / 2**30) if gpus else None,
        "local_disk_gb": node.disk.gb if node.disk else None,
        "links.topology": {name: list(row) for name, row in node.topology.items()},
    }
    yield from ((name, value) for name, value in known.items() if value)


def _fabric(found: SurveyRecord) -> dict[tuple[str, ...], object]:
    """Of the network: what all nodes have, and what was measured between two."""
    used = [network(node.adapters) for node in found.nodes]
    values: dict[tuple[str, ...], object] = {}
    if used and used[0] and all(each == used[0] for each in used):
        rates = [adapter.gbps for adapter in used[0]]
        values["fabric", "adapters_per_node"] = len(rates)
        values["fabric", "protocol"] = "rdma" if used[0][0].kind in REMOTE else "tcp"
        if None not in rates:
            values["fabric", "gbps_per_node"] = float(sum(rate for rate in rates if rate is not None))
    if found.link and found.link.latency_s is not None:
        values["fabric", "latency_us"] = round(found.link.latency_s * 1e6, 2)
    return values


def network(adapters: tuple[Adapter, ...]) -> list[Adapter]:
    """Those that join nodes: the fastest of the first kind that there is; slower ones are for storage or management."""
    for kind in (*REMOTE, "Ethernet"):
        of_kind = [adapter for adapter in adapters if adapter.kind == kind]
        if of_kind:
            fastest = max(adapter.gbps or 0.0 for adapter in of_kind)
            return [Adapter(name=each.name, gbps=each.gbps, kind=kind) for each in of_kind if (each.gbps or 0.0) == fastest]
    return []


def software_words(found: SurveyRecord) -> str:
    """`driver 550.54.15, CUDA 12.4, NCCL 2.21.5, torch 2.5.1 (sm_70 sm_80)`, of the first node."""
    node = found.nodes[0] if found.nodes else None
    if node is None:
        return ""
    versions: Mapping[str, str | None] = node.versions
    built = f" ({' '.join(node.arch_list)})" if node.arch_list else ""
    names = (("CUDA", "cuda"), ("ROCm", "rocm"), ("NCCL", "nccl"), ("RCCL", "rccl"))
    parts = [f"{name} {versions[key]}" for name, key in names if versions.get(key)]
    parts += [f"torch {versions['torch']}{built}"] if versions.get("torch") else []
    return ", ".join([*([str(node.node.gpu_driver)] if node.node and node.node.gpu_driver else []), *parts])
