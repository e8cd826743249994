"""The parts of what `hpcddp clusters show` prints that are tables of a profile's own: partitions, QOS, links, storage, rules."""

from __future__ import annotations

from hpcddp.cluster.environment import EnvRule, When
from hpcddp.cluster.fact_text import fits, mark, pairs, records_table, value_text, values, wrapped
from hpcddp.cluster.profile import ClusterProfile, Storage
from hpcddp.cluster.slurm_rules import Partition, Qos
from hpcddp.core.text import table

WORD_COLUMNS = ("partition", "node_types", "intent", "automatic", "default", "qos", "path")


def slurm_rules(profile: ClusterProfile) -> str:
    """How jobs are requested."""
    if profile.backend != "slurm":
        return pairs("No Slurm", [("backend", profile.backend)])
    return pairs("Slurm", values(profile, "slurm", profile.slurm, skip=("qos",)))


def partitions(profile: ClusterProfile) -> str:
    """A row per partition."""
    table_of = profile.slurm.partitions
    records = [(name, values(profile, f"slurm.partitions.{name}", record)) for name, record in table_of.items()]
    return records_table("Partitions", Partition, records, "partition", WORD_COLUMNS) if records else ""


def qos_rules(profile: ClusterProfile) -> str:
    """A row per rule of QOS, in the order in which they are tried."""
    if profile.backend != "slurm":
        return ""
    records = []
    for i, rule in enumerate(profile.slurm.qos):
        fields = values(profile, f"slurm.qos.{i}", rule)
        name = next((text for key, text in fields if key == "name"), "none asked for")
        records.append((name, [(key, text) for key, text in fields if key != "name"]))
    return records_table("Limits per QOS", Qos, records, "qos", WORD_COLUMNS) if any(fields for _, fields in records) else ""


def topologies(profile: ClusterProfile) -> str:
    """What joins the GPUs and adapters of each node type, a matrix each; rows without a header where that is too wide."""
    return "\n\n".join(_topology(profile, name) for name, node in profile.node_types.items() if node.links.topology)


def _topology(profile: ClusterProfile, name: str) -> str:
    matrix = profile.node_types[name].links.topology
    fact = profile.facts.get(f"node_types.{name}.links.topology") or profile.facts.get(f"node_types.{name}.links")
    title = f"Topology of {name}{mark(fact) if fact else ''}"
    text = table(("", *matrix), [(device, *row) for device, row in matrix.items()], left=("", *matrix))
    return f"{title}\n{text}" if fits(text) else pairs(title, [(device, " ".join(row)) for device, row in matrix.items()])


def storage(profile: ClusterProfile) -> str:
    """A row per file system."""
    records = [(name, values(profile, f"storage.{name}", one)) for name, one in profile.storage.items()]
    return records_table("Storage", Storage, records, "name", WORD_COLUMNS) if records else ""


def rendezvous(profile: ClusterProfile) -> str:
    """How ranks find rank 0, where that is not by the first node's name."""
    return pairs(
        "Rendezvous", [row for row in values(profile, "rendezvous", profile.rendezvous) if row != ("master_address", "name")]
    )


def env_rules(profile: ClusterProfile) -> str:
    """Variables that some jobs have: the value, the condition, and the source."""
    rows = [(rule.name, _rule_text(rule)) for rule in profile.env_rules]
    commands = [_command_text(rule.name, rule.command) for rule in profile.env_rules if rule.command is not None]
    return "\n".join([pairs("Environment of some jobs", rows), *commands]) if rows else ""


def _rule_text(rule: EnvRule) -> str:
    value = rule.value if rule.command is None else "what the command below prints in the job"
    return f"{value}; {_when_text(rule.when)} [{rule.source}]"


def _command_text(name: str, command: str) -> str:
    """The command as it stands in the file, indented; lines that are too wide go on in the next one, further in."""
    lines = []
    for line in command.splitlines():
        indent = " " * (4 + len(line) - len(line.lstrip()))
        lines += wrapped(line.strip(), f"{indent}    ", indent)
    return "\n".join([f"  {name}:", *lines])


def _when_text(when: When) -> str:
    conditions = {"fabric": when.fabric, "nccl": when.nccl, "node_type": value_text(when.node_type) or None, "nodes": when.nodes}
    known = [f"{key} {value}" for key, value in conditions.items() if value is not None]
    return f"when {', '.join(known)}" if known else "in all jobs"
