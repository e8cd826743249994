"""A live Slurm as the document of a profile: plain values, and facts: what Slurm says, what it does not say, and what
it cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.cluster.profile import Fact
from hpcddp.core.text import first_few
from hpcddp.detect.fields import NO_LIMIT, smallest
from hpcddp.detect.live import LiveSlurm, slurm_version
from hpcddp.detect.node_types import LiveNodeType
from hpcddp.detect.nodes import LiveNode
from hpcddp.detect.partitions import LivePartition
from hpcddp.detect.rules import (
    LIMITS,
    OF_ALL,
    PartitionLimits,
    always_exclusive,
    counts_gpus,
    default_qos,
    is_possible,
    most_threads,
    my_partitions,
    my_qos,
    named_qos,
    partition_limits,
    qos_limits,
    smt_of,
)
from hpcddp.detect.trial import TrialVerdict

SLURM, UNKNOWN = "slurm", "unknown"
"""Keys of the profile's `sources`."""


def known_fact(value: object, note: str | None = None) -> Fact:
    """What Slurm says."""
    return Fact(value=value, grade="A", source=SLURM, note=note)


def unknown(note: str, source: str = UNKNOWN) -> Fact:
    """What it does not; the note says how to find it."""
    return Fact(value=None, grade="?", source=source, note=note)


def said(value: object, subject: str, note: str | None = None) -> Fact:
    """A fact, or that Slurm did not say it."""
    return unknown(f"not in Slurm's answers: {subject}", SLURM) if value is None else known_fact(value, note)


def limited(value: int | None, subject: str, note: str | None = None, none: str = "no limit") -> Fact:
    """A limit, `none` where Slurm says that there is none, or that it did not say it."""
    return known_fact(None, none) if value == NO_LIMIT else said(value, subject, note)


Document = dict[str, object]

NODE_UNKNOWN = {
    "cpu": "lscpu on such a node",
    "gpu": "torch.cuda.get_device_name() on such a node",
    "gpu_memory_gb": "nvidia-smi --query-gpu=memory.total --format=csv",
    "local_disk_gb": "df -h $TMPDIR /tmp on such a node",
}
FABRIC_UNKNOWN = {
    "name": "ibstat, or lspci | grep -i ethernet, on a node",
    "gbps_per_node": "the rates that ibstat names on a node, added up",
    "adapters_per_node": "ls /sys/class/infiniband on a node",
    "latency_us": "hpcddp bench comm on two nodes",
}
"""What Slurm does not know -> how to find it."""

COMMENTS = {
    "sources": 'A fact is {value: ..., grade: ..., source: ...}; grades: A Slurm reports it, C an inference, "?" unknown.',
    "node_types": "Nodes that a job cannot distinguish are one type. Cores are physical, without those that jobs cannot use.",
    "slurm": "How jobs are requested. A job that requests no QOS gets the first rule of `qos`.",
    "fabric": "Slurm does not report the network.",
    "compute": "Environment of the workers: `modules`, `activate` or `container` of your site.",
    "env": "Exported in every job, after modules and `activate`.",
    "default_workload": "What `hpcddp render` trains without a sweep. Images are synthetic, so nothing is downloaded.",
}
"""Above a key of the file."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the document is about besides Slurm's answers."""

    name: str
    date: str
    verdict: TrialVerdict


def document(live: LiveSlurm, types: Sequence[LiveNodeType], subject: Subject) -> Document:
    """The keys of a profile's file, in its order."""
    partitions = my_partitions(live)
    return {
        "schema": 1,
        "name": subject.name,
        "title": f"{live.setting('ClusterName') or subject.name}, as its Slurm describes it",
        "backend": "slurm",
        "status": "active",
        "note": _note(live, subject),
        "sources": _sources(live, subject),
        "default_node_type": default_type(types, partitions),
        "node_types": {kind.name: _node_type(kind, types) | _own_memory(kind, partitions, types) for kind in types},
        "slurm": _slurm(live, types, partitions, subject.verdict),
        "fabric": {key: unknown(note) for key, note in FABRIC_UNKNOWN.items()},
        "compute": {"kind": "system", "torch": unknown("which build of torch these GPUs and processors need")},
        "env": {},
        "default_workload": {"model": "resnet50", "data": {"name": "synthetic-imagenet"}, "batch_per_gpu": 32},
    }


def default_type(types: Sequence[LiveNodeType], partitions: Sequence[LivePartition]) -> str | None:
    """The one with whole GPUs and most nodes, never one with MIG slices; what only a hidden partition has comes after."""
    shown = {partition.name for partition in partitions if not partition.hidden}
    full = [kind for kind in types if not kind.is_sliced]
    return min(full, key=lambda kind: (not kind.gpus, not kind.partitions & shown, -len(kind.nodes))).name if full else None


def trouble_words(nodes: Sequence[LiveNode]) -> list[str]:
    """`2 drained: gn03, gn04 (bad DIMM)`, for each kind of trouble and reason."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for node in nodes:
        if node.trouble:
            groups.setdefault((node.trouble, node.reason), []).append(node.name)
    return [
        f"{len(names)} {trouble}: {first_few(sorted(names))}" + (f" ({reason})" if reason else "")
        for (trouble, reason), names in groups.items()
    ]


def _note(live: LiveSlurm, subject: Subject) -> str:
    """What no key of a profile says."""
    texts = [
        f"Made by `hpcddp clusters detect` on {subject.date}; what Slurm does not report is null, with a note how to find it."
    ]
    if live.has_accounting is False:
        texts.append("Accounting is off: no accounts, no QOS.")
    else:
        enforced = live.setting("AccountingStorageEnforce")
        texts += [f"AccountingStorageEnforce is {enforced}."] if enforced else []
        accounts = subject.verdict.accounts
        texts += [f"Accounts you may charge: {', '.join(accounts)}."] if accounts else []
        jobs = smallest(*(each.max_jobs for each in live.associations or ()), *(q.max_jobs_per_user for q in my_qos(live)))
        texts += [f"Jobs you may have in the queue (MaxSubmitJobs): {jobs}."] if jobs else []
    return " ".join(texts)


def _sources(live: LiveSlurm, subject: Subject) -> dict[str, str]:
    version = slurm_version(live)
    return {
        SLURM: f"Slurm{f' {version}' if version else ''} on {subject.date}: scontrol, sacctmgr and sbatch --test-only",
        UNKNOWN: "not reported by Slurm; the note tells how to find it",
    }


def _node_type(kind: LiveNodeType, types: Sequence[LiveNodeType]) -> Document:
    """Its keys in the order of the profiles that come with hpcddp."""
    first, broken = kind.first, trouble_words(kind.nodes)
    untyped = "its GPUs have no type; request them with gpu:N" if kind.gpus and not kind.gres_type else None
    features, smt, cores = _features_note(kind), first.smt or 1, first.physical_cores
    counted = f"Slurm counts {cores * smt} CPUs per node" if smt > 1 and cores else None
    found: dict[str, Fact | None] = {
        "count": known_fact(len(kind.nodes), "; ".join(broken) or None),
        "names": known_fact(kind.names),
        "cpu": None,
        "sockets": said(first.sockets or None, "Sockets of scontrol show node"),
        "physical_cores": said(first.physical_cores or None, "CPUTot and CoresPerSocket", _reserved(first.system_cores)),
        "smt": None if first.smt is None else known_fact(first.smt, counted),
        "memory_mb": said(first.job_memory_mb or None, "RealMemory", _reserved(first.system_memory_mb)),
        "gpus": _gpus(kind, types),
        **({} if kind.gpus == 0 and counts_gpus(types) else dict.fromkeys(("gpu", "gpu_memory_gb"))),
        "gres_type": known_fact(kind.gres_type, untyped) if kind.gpus else None,
        "constraint": known_fact(kind.constraint, features) if kind.constraint or features else None,
        "local_disk_gb": None,
    }
    notes = {key: unknown(note) for key, note in NODE_UNKNOWN.items() if key in found}
    return {key: found[key] or notes[key] for key in found if found[key] or key in notes}


def _gpus(kind: LiveNodeType, types: Sequence[LiveNodeType]) -> Fact:
    """Where Slurm counts no GPUs at all, the nodes may have them all the same: some sites give them with the node."""
    if not counts_gpus(types):
        return unknown("this Slurm does not count GPUs: nvidia-smi -L on a node")
    return said(kind.gpus, "Gres", _mixed_note(kind))


def _own_memory(kind: LiveNodeType, partitions: Sequence[LivePartition], types: Sequence[LiveNodeType]) -> Document:
    """Its memory per core, where its cores have fewer CPUs than others of its partition: Slurm counts it per CPU."""
    caps = [each for each in partitions if each.name in kind.partitions and each.max_mb_per_cpu]
    smt = kind.first.smt
    if not caps or smt is None or smt == smt_of(caps[0], types):
        return {}
    return {"max_mb_per_core": known_fact(smt * (caps[0].max_mb_per_cpu or 0), f"MaxMemPerCPU of partition {caps[0].name}")}


def _reserved(number: int | None) -> str | None:
    return f"{number} more are for the system" if number else None


def _mixed_note(kind: LiveNodeType) -> str | None:
    slices = "MIG slices, which DDP cannot combine" if kind.is_sliced else None
    others = [f"{number} of type {name}" if name else f"{number} without a type" for name, number in kind.gpu_types[1:]]
    besides = f"and {' and '.join(others)} on the same node" if others else None
    return "; ".join(filter(None, (slices, besides))) or None


def _features_note(kind: LiveNodeType) -> str | None:
    features = ", ".join(kind.features)
    some = f"some have {first_few(kind.other_features)}" if kind.other_features else None
    return "; ".join(filter(None, (f"features: {features}" if features else None, some))) or None


def _slurm(
    live: LiveSlurm, types: Sequence[LiveNodeType], partitions: Sequence[LivePartition], verdict: TrialVerdict
) -> Document:
    found: Document = {}
    if len(partitions) == 1:
        found["partition"] = known_fact(partitions[0].name, _partition_note(partitions[0]))
        found |= _limits(partition_limits(live, partitions[0], types), OF_ALL)
    elif not partitions:
        found["partition"] = unknown("not in Slurm's answers: scontrol show partitions", SLURM)
    found |= _requests(partitions, types, verdict)
    size = live.number("MaxArraySize")
    found["max_array_size"] = said(size, "MaxArraySize of scontrol show config")
    usual, smt = default_qos(live), most_threads(types)
    if usual and usual.max_gpus_per_user:
        found["max_gpus_per_user"] = known_fact(usual.max_gpus_per_user, f"QOS {usual.name}")
    if usual and usual.max_cpus_per_user and smt:
        found["max_cores_per_user"] = known_fact(usual.max_cpus_per_user // smt, f"QOS {usual.name}")
    if len(partitions) > 1:
        found["partitions"] = {each.name: _partition(live, each, types, verdict) for each in partitions}
    found["qos"] = _qos_rules(live, partitions, types, verdict)
    return found


def _requests(partitions: Sequence[LivePartition], types: Sequence[LiveNodeType], verdict: TrialVerdict) -> Document:
    refused = f"sbatch --test-only: {verdict.why}" if verdict.why else "not tried"
    usual = "gres" if counts_gpus(types) else "none"
    taken = Fact(value=usual, grade="?", source=SLURM, note=refused) if verdict.gpu_request is None else _request(verdict)
    required = verdict.account_required
    memory = verdict.memory_option
    return {
        "account_required": unknown(refused, SLURM) if required is None else known_fact(required),
        "gpu_request": taken,
        **({} if memory in (None, "free") else {"memory_option": known_fact(memory, "of --mem, by sbatch --test-only")}),
        "always_exclusive": said(always_exclusive(partitions, types), "OverSubscribe of scontrol show partitions"),
        "exclusive_needs_all_gpus": unknown("ask the site who gets GPUs that --exclusive leaves"),
    }


def _request(verdict: TrialVerdict) -> Fact:
    if verdict.gpu_request == "none":
        note = "sbatch --test-only accepts no option for GPUs, and a job without one"
        return Fact(value="none", grade="C", source=SLURM, note=note)
    return known_fact(verdict.gpu_request, "sbatch --test-only accepts it")


def _limits(limits: PartitionLimits, keys: Iterable[str]) -> Document:
    few = {"max_nodes": "the partition's number of nodes"} if limits.few_nodes else {}
    return {key: limited(getattr(limits, key), LIMITS[key][0], few.get(key), none=LIMITS[key][1]) for key in keys}


def _partition(live: LiveSlurm, partition: LivePartition, types: Sequence[LiveNodeType], verdict: TrialVerdict) -> Document:
    limits = partition_limits(live, partition, types)
    found: Document = {
        "node_types": known_fact([kind.name for kind in types if partition.name in kind.partitions]),
        "default": said(partition.default, "Default", _partition_note(partition)),
        **_limits(limits, LIMITS),
    }
    if limits.min_nodes and limits.min_nodes > 1:
        found["min_nodes"] = known_fact(limits.min_nodes)
    if allowed := [qos.name for qos in named_qos(live, verdict.qos) if qos.name in (partition.allowed_qos or ())]:
        found["qos"] = known_fact(allowed)
    return found


def _partition_note(partition: LivePartition) -> str | None:
    hidden = ["hidden: sinfo shows it with --all only"] if partition.hidden else []
    return "; ".join([*hidden, *(["not up now"] if partition.is_up is False else [])]) or None


def _qos_rules(
    live: LiveSlurm, partitions: Sequence[LivePartition], types: Sequence[LiveNodeType], verdict: TrialVerdict
) -> list[Document]:
    """First what a job gets that asks for none, or the one to ask for. With one partition its limits are in every rule."""
    only = partition_limits(live, partitions[0], types) if len(partitions) == 1 else None
    allowed = (partitions[0].allowed_qos if only else None) or [qos.name for qos in live.qos or ()]
    mine = [qos for qos in named_qos(live, verdict.qos) if qos.name in allowed]
    named = sorted(mine, key=lambda qos: qos.name != verdict.qos)
    rules = [_qos_rule(qos.name, limits) for qos in named if is_possible(limits := qos_limits(qos, only))]
    if verdict.qos is None:
        usual = default_qos(live)
        return [_qos_rule(None, qos_limits(usual, only), f"Slurm's name for it is {usual.name}" if usual else None), *rules]
    note = "sbatch --test-only accepts no job without a QOS; of the accepted ones, this charges and limits least"
    rules[0]["automatic"] = Fact(value=True, grade="C", source=SLURM, note=note)
    return rules


def _qos_rule(name: str | None, limits: Mapping[str, int | None], note: str | None = None) -> Document:
    return {"name": known_fact(name, note), **{key: known_fact(value) for key, value in limits.items() if value}}
