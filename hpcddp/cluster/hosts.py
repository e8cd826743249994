"""Hosts that ssh reaches, as the nodes of a cluster: `names: a,user@b` of a node type, or `aws-g5 on a,user@b` for a cluster."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import UsageError

ON = " on "
"""Between a cluster and the hosts that stand for its nodes."""


def cluster_on(cluster: str | None, given: str) -> str:
    """What names that cluster on these hosts: `a,user@b`, or a file with a line for each; UsageError where there is none."""
    hosts = split_hosts(Path(given).read_text(encoding="utf-8", errors="replace") if Path(given).is_file() else given)
    if odd := next((host for host in hosts if not re.fullmatch(r"(\w[\w.%-]*@)?\w[\w.%-]*", host)), None):
        where = "Ports, IPv6 addresses and options belong in ~/.ssh/config"
        raise UsageError(f"--hosts {given}: {odd[:40]!r} is no host's name, as in `--hosts a,user@b`. {where}.")
    if not hosts:
        raise UsageError(f"--hosts {given}: no host. Give names, as in `--hosts a,user@b`, or a file with a line for each.")
    return f"{cluster or 'local'}{ON}{','.join(hosts)}"


def split_hosts(text: str) -> list[str]:
    """Names between commas, blanks or lines, without comments."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return list(dict.fromkeys(name for line in lines for name in line.replace(",", " ").split()))


def with_hosts(profile: ClusterProfile, names: str) -> ClusterProfile:
    """The profile with these hosts in place of its nodes, reached by ssh and not by its Slurm."""
    known = profile.node_types or {"host": NodeType()}
    count = len(split_hosts(names))
    types = {name: dataclasses.replace(node, names=names, count=count, partition=None) for name, node in known.items()}
    default = profile.default_node_type or next(iter(types))
    return dataclasses.replace(profile, backend="hosts", node_types=types, default_node_type=default, slurm=SlurmRules())


def hosts_of(profile: ClusterProfile, node_type: str | None) -> list[str]:
    """Of a node type; UsageError where it names none, or a range."""
    names = profile.node_type(node_type).names or ""
    if not split_hosts(names) or "[" in names:
        raise UsageError(f"{profile.name} names no hosts. Write `names: a,user@b` into its node type, or use --hosts a,user@b.")
    return split_hosts(names)
