"""What a profile says must hold together: partitions, rules, accounts and links that name each other;
and which variables and containers it may have.

Each check says the path of what is wrong and what is expected there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hpcddp.cluster.environment import EnvRule, When, condition_holds
from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import AccountForm, Partition, Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import Path, SchemaError, did_you_mean

NEWEST_SCHEMA = 1

TOPOLOGY_WORDS = r"X|NV[1-9]\d*|PIX|PXB|PHB|NODE|SYS|XGMI|PCIE"
"""Of `nvidia-smi topo -m`, and the last two of `rocm-smi --showtopo`."""

Finding = tuple[Path, str]


def refuse_newer(data: object) -> None:
    """SchemaError for a profile of a later version of the format, before its keys are called unknown."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema > NEWEST_SCHEMA:
        words = f"this profile is of schema {schema}, and this hpcddp reads {NEWEST_SCHEMA}: upgrade hpcddp"
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
            words = f"min_nodes is {partition.min_nodes}, above max_nodes: at most {partition.max_nodes} is expected"
            yield (*path, "min_nodes"), words
    default = [name for name, partition in table.items() if partition.default]
    if default[1:]:
        yield (
            ("slurm", "partitions", default[1], "default"),
            f"`{default[0]}` is already the default partition. Exactly one is expected.",
        )


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
            words = f"partition {node.partition} has nodes of type {_or(types)}; {name} is expected there"
            yield ("node_types", name, "partition"), words


def _rules(profile: ClusterProfile) -> Iterator[Finding]:
    """Rules that no job can fit."""
    if not profile.slurm.qos:
        yield ("slurm", "qos"), "`qos` has no rule, so no job could be submitted. Add a rule, or remove `qos`."
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
        yield (*path, "partition"), f"{where} allows QOS {_or(partition.qos)}; {rule.name} is expected there"
    if rule.node_types and partition.node_types and not set(rule.node_types) & set(partition.node_types):
        yield (*path, "node_types"), f"{where} has nodes of type {_or(partition.node_types)}; one of them is expected"
    if partition.max_nodes is not None and rule.min_nodes > partition.max_nodes:
        yield (*path, "min_nodes"), f"{where} allows at most {partition.max_nodes} nodes, below min_nodes"
    if rule.max_nodes is not None and rule.max_nodes < (partition.min_nodes or 1):
        yield (*path, "max_nodes"), f"{where} needs at least {partition.min_nodes} nodes, above max_nodes"


def _account_forms(profile: ClusterProfile) -> Iterator[Finding]:
    forms: dict[Path, AccountForm | None] = {("slurm", "account_form"): profile.slurm.account_form}
    forms |= {("node_types", name, "account_form"): node.account_form for name, node in profile.node_types.items()}
    for path, form in forms.items():
        try:
            re.compile(form.pattern if form is not None else "")
        except re.error as error:
            yield (*path, "pattern"), f"{form and form.pattern!r} is not a regular expression of Python: {error}"


def _topologies(profile: ClusterProfile) -> Iterator[Finding]:
    for name, node in profile.node_types.items():
        yield from _topology(("node_types", name, "links", "topology"), node, node.links.topology)


def _topology(path: Path, node: NodeType, matrix: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    gpus = sum(name.startswith("GPU") for name in matrix)
    if node.gpus is not None and gpus > node.gpus:
        yield path, f"{gpus} rows for GPUs, but a node has {node.gpus}. One row per GPU is expected."
    for i, (name, row) in enumerate(matrix.items()):
        if len(row) != len(matrix):
            yield (*path, name), f"{len(row)} words in row {name}, but {len(matrix)} rows. A square matrix is expected."
        for word in row:
            if not re.fullmatch(TOPOLOGY_WORDS, word):
                known = "X, NV3, PIX, PXB, PHB, NODE or SYS is expected, or `rocm-smi --showtopo`'s XGMI or PCIE"
                yield (*path, name), f"`{word}` is not an entry of `nvidia-smi topo -m`: {known}"
        if [j for j, word in enumerate(row) if word == "X"] != [i]:
            yield (*path, name), f"row {name} must have X at entry {i + 1} (itself), and nowhere else"


def _unknown(path: Path, what: str, names: tuple[str, ...], known: Mapping[str, object]) -> Iterator[Finding]:
    for name in names:
        if name not in known:
            yield path, f"no {what} `{name}` in this profile{did_you_mean(name, known)}"


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)


# fmt: off
DEBUGGING = frozenset(
    (
        "NCCL_ALGO", "NCCL_ALLOC_P2P_NET_LL_BUFFERS", "NCCL_BUFFSIZE", "NCCL_CGA_CLUSTER_SIZE", "NCCL_CHECKS_DISABLE",
        "NCCL_CHECK_MODE", "NCCL_CHECK_POINTERS", "NCCL_COMM_BLOCKING", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_DMABUF_ENABLE", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_REGISTER", "NCCL_GRAPH_STREAM_ORDERING",
        "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_AR_THRESHOLD", "NCCL_IB_CUDA_SUPPORT", "NCCL_IB_DISABLE", "NCCL_IB_ECE_ENABLE",
        "NCCL_IB_GDR_LEVEL", "NCCL_IB_MERGE_NICS", "NCCL_IB_OOO_RQ", "NCCL_IB_PCI_RELAXED_ORDERING",
        "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IGNORE_COLLNET_MISMATCH", "NCCL_IGNORE_NET_MISMATCH",
        "NCCL_IPC_USE_ABSTRACT_SOCKET", "NCCL_LAUNCH_MODE", "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_LAUNCH_RACE_FATAL",
        "NCCL_LEGACY_CUDA_REGISTER", "NCCL_LL_THRESHOLD", "NCCL_LOCAL_REGISTER", "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS",
        "NCCL_MEM_SYNC_DOMAIN", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MNNVL_CLIQUE_ID", "NCCL_MNNVL_ENABLE",
        "NCCL_MNNVL_UUID", "NCCL_NET_GDR_C2C", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NET_MERGE_POLICY",
        "NCCL_NET_SHARED_BUFFERS", "NCCL_NET_SHARED_COMMS", "NCCL_NTHREADS", "NCCL_NVB_DISABLE", "NCCL_NVLS_ENABLE",
        "NCCL_P2P_DIRECT_DISABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_LL_THRESHOLD", "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_P2P_PXN_LEVEL", "NCCL_PROTO", "NCCL_PXN_C2C", "NCCL_PXN_DISABLE", "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE",
        "NCCL_RAS_TIMEOUT_FACTOR", "NCCL_RUNTIME_CONNECT", "NCCL_SET_STACK_SIZE", "NCCL_SHM_DISABLE",
        "NCCL_SINGLE_RING_THRESHOLD", "NCCL_SYM_GIN_KERNELS_ENABLE", "NCCL_TREE_THRESHOLD", "NCCL_WIN_ENABLE",
    )
)
# fmt: on
"""Those below "Debugging" in NVIDIA's own list (https://github.com/NVIDIA/nccl/blob/5067397/docs/userguide/source/env.rst), which
says of them that they should not be set in production nor kept in scripts; NCCL_IB_GDR_LEVEL is an older name of one.
"""

LOGGING = ("NCCL_DEBUG", "NCCL_TOPO_DUMP_FILE")
"""Beginnings of names of those that write while a run is timed."""


def is_for_debugging(name: str) -> bool:
    """Whether NVIDIA files the variable under debugging, or it makes NCCL write."""
    return name in DEBUGGING or name.startswith(LOGGING)


def check_environment(profile: ClusterProfile) -> None:
    """SchemaError with the first thing that does not fit."""
    for at, rule in enumerate(profile.env_rules):
        try:
            _check_rule(rule, profile)
        except SchemaError as error:
            raise error.inside("env_rules", at) from None
    if profile.backend != "slurm" and profile.compute.container:
        words = f"Slurm does not start the ranks of {profile.name}. Write the container runtime's command into compute.python."
        raise SchemaError(("compute", "container"), words)
    rendezvous = profile.rendezvous
    if rendezvous.master_suffix and rendezvous.master_address == "numeric":
        words = f"`{rendezvous.master_suffix}` extends a host name, but master_address is numeric. Remove one of them."
        raise SchemaError(("rendezvous", "master_suffix"), words)


def _check_rule(rule: EnvRule, profile: ClusterProfile) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*", rule.name, re.ASCII):
        raise SchemaError(("name",), f"`{rule.name}` is not a variable name")
    if is_for_debugging(rule.name):
        words = f"{rule.name} is a debugging variable by NVIDIA's list, and may slow timed runs. Set it by hand, for single jobs."
        raise SchemaError(("name",), words)
    if (rule.value is None) == (rule.command is None):
        raise SchemaError(("name",), f"{rule.name} needs either a `value` or a `command`")
    if rule.name.startswith("NCCL_") and rule.when == When():
        words = f"{rule.name} needs a `when`: the fabric, NCCL version, node type or number of nodes that it applies to"
        raise SchemaError(("name",), words)
    for name in rule.when.node_type:
        if name not in profile.node_types:
            raise SchemaError(("when", "node_type"), f"no node type `{name}`{did_you_mean(name, profile.node_types)}")
    _check_conditions(rule.when)


def _check_conditions(when: When) -> None:
    for key, condition in (("nccl", when.nccl), ("nodes", when.nodes)):
        try:
            if condition is not None:
                condition_holds(condition, 1)
        except UsageError as error:
            raise SchemaError(("when", key), str(error)) from None
