"""What a profile says must hold together: partitions, rules, accounts and links that name each other.

Each check yields the path of what is wrong and what is expected there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import AccountForm, Partition, Qos
from hpcddp.core.schema import Path, SchemaError, did_you_mean

NEWEST_SCHEMA = 1

TOPOLOGY_WORDS = r"X|NV[1-9]\d*|PIX|PXB|PHB|NODE|SYS|XGMI|PCIE"
"""Of `nvidia-smi topo -m`, and the last two of `rocm-smi --showtopo`."""

Finding = tuple[Path, str]


def refuse_newer(data: object) -> None:
    """SchemaError for a profile of a later version of the format, before its keys are called unknown."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema > NEWEST_SCHEMA:
        words = f"this profile is of schema {schema}, and this hpcddp reads {NEWEST_SCHEMA}: a newer hpcddp is needed"
        raise SchemaError(("schema",), words)


def check_profile(profile: ClusterProfile) -> None:
    """SchemaError for the first thing that does not hold together."""
    for check in (_partitions, _named_partitions, _rules, _account_forms, _topologies):
        for path, words in check(profile):
            raise SchemaError(path, words)


def _partitions(profile: ClusterProfile) -> Iterator[Finding]:
    table = profile.slurm.partitions
    for name, partition in table.items():
        path = ("slurm", "partitions", name)
        yield from _unknown((*path, "node_types"), "node type", partition.node_types, profile.node_types)
        if partition.max_nodes is not None and (partition.min_nodes or 1) > partition.max_nodes:
            yield (
                (*path, "min_nodes"),
                f"min_nodes is {partition.min_nodes}, above max_nodes: at most {partition.max_nodes} is expected",
            )
    default = [name for name, partition in table.items() if partition.default]
    if default[1:]:
        yield ("slurm", "partitions", default[1], "default"), f"`{default[0]}` is the default partition already; one is expected"


def _named_partitions(profile: ClusterProfile) -> Iterator[Finding]:
    """Partitions that are named outside the table, where there is one."""
    table = profile.slurm.partitions
    named: dict[Path, str | None] = {("slurm", "partition"): profile.slurm.partition}
    named |= {("node_types", name, "partition"): node.partition for name, node in profile.node_types.items()}
    named |= {("slurm", "qos", i, "partition"): rule.partition for i, rule in enumerate(profile.slurm.qos)}
    for path, name in named.items():
        if table and name is not None and name not in table:
            yield path, f"no partition `{name}` in slurm.partitions{did_you_mean(name, table)}"
    for name, node in profile.node_types.items():
        types = table.get(node.partition or "", Partition()).node_types
        if types and name not in types:
            yield (
                ("node_types", name, "partition"),
                f"partition {node.partition} has nodes of type {_or(types)}; {name} is expected there",
            )


def _rules(profile: ClusterProfile) -> Iterator[Finding]:
    """Rules that no job can fit."""
    if not profile.slurm.qos:
        yield ("slurm", "qos"), "no rule, so that no job could be submitted: at least one is expected, or leave `qos` out"
    for i, rule in enumerate(profile.slurm.qos):
        path = ("slurm", "qos", i)
        yield from _unknown((*path, "node_types"), "node type", rule.node_types, profile.node_types)
        if rule.max_nodes is not None and rule.min_nodes > rule.max_nodes:
            yield (*path, "min_nodes"), f"min_nodes is {rule.min_nodes}, above max_nodes: at most {rule.max_nodes} is expected"
        if rule.partition in profile.slurm.partitions:
            yield from _rule_in_partition(path, rule, profile.slurm.partitions[str(rule.partition)])


def _rule_in_partition(path: Path, rule: Qos, partition: Partition) -> Iterator[Finding]:
    where = f"no job fits this rule: partition {rule.partition}"
    if rule.name and partition.qos and rule.name not in partition.qos:
        yield (*path, "partition"), f"{where} takes QOS {_or(partition.qos)}; {rule.name} is expected there"
    if rule.node_types and partition.node_types and not set(rule.node_types) & set(partition.node_types):
        yield (*path, "node_types"), f"{where} has nodes of type {_or(partition.node_types)}; one of them is expected"
    if partition.max_nodes is not None and rule.min_nodes > partition.max_nodes:
        yield (*path, "min_nodes"), f"{where} takes {partition.max_nodes} nodes at most; no more is expected as min_nodes"
    if rule.max_nodes is not None and rule.max_nodes < (partition.min_nodes or 1):
        yield (*path, "max_nodes"), f"{where} takes {partition.min_nodes} nodes at least; no fewer is expected as max_nodes"


def _account_forms(profile: ClusterProfile) -> Iterator[Finding]:
    forms: dict[Path, AccountForm | None] = {("slurm", "account_form"): profile.slurm.account_form}
    forms |= {("node_types", name, "account_form"): node.account_form for name, node in profile.node_types.items()}
    for path, form in forms.items():
        try:
            re.compile(form.pattern if form is not None else "")
        except re.error as error:
            yield (*path, "pattern"), f"{form and form.pattern!r} is no regular expression: {error}; one of Python's is expected"


def _topologies(profile: ClusterProfile) -> Iterator[Finding]:
    for name, node in profile.node_types.items():
        yield from _topology(("node_types", name, "links", "topology"), node, node.links.topology)


def _topology(path: Path, node: NodeType, matrix: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    gpus = sum(name.startswith("GPU") for name in matrix)
    if node.gpus is not None and gpus > node.gpus:
        yield path, f"{gpus} GPUs named, and a node has {node.gpus}: a row for each is expected, and no more"
    for i, (name, row) in enumerate(matrix.items()):
        if len(row) != len(matrix):
            yield (*path, name), f"{len(row)} words in row {name} of {len(matrix)}: a square is expected, a word for each row"
        for word in row:
            if not re.fullmatch(TOPOLOGY_WORDS, word):
                yield (
                    (*path, name),
                    f"`{word}` is no word of `nvidia-smi topo -m`: X, NV3, PIX, PXB, PHB, NODE or SYS is expected, or "
                    f"`rocm-smi --showtopo`'s XGMI or PCIE",
                )
        if [j for j, word in enumerate(row) if word == "X"] != [i]:
            yield (*path, name), f"X is expected at word {i + 1} of row {name}, for itself, and nowhere else"


def _unknown(path: Path, what: str, names: tuple[str, ...], known: Mapping[str, object]) -> Iterator[Finding]:
    for name in names:
        if name not in known:
            yield path, f"no {what} `{name}` in this profile{did_you_mean(name, known)}"


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)
