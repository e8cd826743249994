"""The rules that a twin has by its profile: partitions, QOS, accounts, and what only a job_submit plug-in can hold."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import AccountForm, Partition, Qos
from hpcddp.core.errors import UsageError
from tests.twin.shape import DEFAULT_QOS, qos_name

PARTITION = "batch"
"""The partition of jobs that name none, where the profile lets them; only this one is Slurm's default without being called so."""


QOS_LIMITS = ("max_nodes", "max_walltime_min", "max_gpus", "max_cpus")


@dataclass(frozen=True, kw_only=True)
class TwinPartition:
    """One partition of the twin, with everything that slurm.conf says of it but its nodes' names."""

    name: str
    node_types: tuple[str, ...]
    is_default: bool
    limits: Partition
    qos: str | None
    """The partition's own QOS, whose limits hold for every job in it that has none of its own."""
    allowed_qos: tuple[str, ...] | None
    """None: jobs in it may ask for any QOS."""


def partitions(profile: ClusterProfile) -> list[TwinPartition]:
    """In the order in which the profile names them."""
    return [_partition(profile, name) for name in _names(profile)]


def _named(profile: ClusterProfile) -> list[str]:
    """Partitions that the profile names."""
    rules = profile.slurm
    named = [
        *rules.partitions,
        rules.partition,
        *(kind.partition for kind in profile.node_types.values()),
        *(rule.partition for rule in rules.qos),
    ]
    return list(dict.fromkeys(name for name in named if name is not None))


def _names(profile: ClusterProfile) -> list[str]:
    rules, names = profile.slurm, _named(profile)
    is_unnamed = not rules.partition and not rules.partitions and any(rule.partition is None for rule in rules.qos)
    free = [key for key, kind in profile.node_types.items() if kind.partition is None]
    return [*names, PARTITION] if is_unnamed and free else names


def _partition(profile: ClusterProfile, name: str) -> TwinPartition:
    rules = profile.slurm
    given = rules.partitions.get(name, Partition())
    node_types = partition_types(profile, name)
    holding = [rule for rule in rules.qos if rule.partition in (None, name)]
    usable = list(dict.fromkeys(qos_name(rule) for rule in holding))
    if given.qos:
        usable = [qos for qos in usable if qos in (DEFAULT_QOS, *given.qos)]
    return TwinPartition(
        name=name,
        node_types=node_types,
        is_default=given.default is True or (name == PARTITION and name not in _named(profile)),
        limits=dataclasses.replace(
            given,
            max_walltime_min=given.max_walltime_min or _longest_min(holding),
            default_walltime_min=given.default_walltime_min or rules.default_walltime_min,
            max_mb_per_core=given.max_mb_per_core or _max_mb_per_core(profile, node_types),
            default_mb_per_core=given.default_mb_per_core or rules.default_mb_per_core,
        ),
        qos=partition_qos(name) if _own_rule(profile, name) else None,
        allowed_qos=None if {DEFAULT_QOS, *map(qos_name, rules.qos)} <= set(usable) else tuple(usable),
    )


def partition_types(profile: ClusterProfile, name: str) -> tuple[str, ...]:
    """The types of its nodes: those the partition names and those that name it, else those that its rules name, else all that
    have no partition of their own.
    """
    given = profile.slurm.partitions.get(name)
    own = [key for key, kind in profile.node_types.items() if kind.partition == name]
    if given is not None:
        return tuple(dict.fromkeys((*(given.node_types or profile.node_types), *own)))
    ruled = [key for rule in profile.slurm.qos if rule.partition == name for key in rule.node_types]
    free = [key for key, kind in profile.node_types.items() if kind.partition is None]
    return tuple(dict.fromkeys(own or ruled or free or profile.node_types))


def _longest_min(rules: Sequence[Qos]) -> int | None:
    """The longest job that any of the rules allows, minutes; None as soon as one has no limit."""
    return _largest(rule.max_walltime_min for rule in rules)


def _largest(limits: Iterable[int | None]) -> int | None:
    values = list(limits)
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _max_mb_per_core(profile: ClusterProfile, node_types: Sequence[str]) -> int | None:
    kinds = [profile.node_types[key] for key in node_types]
    return _largest(kind.max_mb_per_core or profile.slurm.max_mb_per_core for kind in kinds)


def partition_qos(partition: str) -> str:
    """The name of a partition's own QOS."""
    return f"part_{partition}"


@dataclass(frozen=True, kw_only=True)
class TwinQos:
    """One QOS of the twin: its name in Slurm and the limits that Slurm's accounting holds."""

    name: str
    limits: Qos
    """Of several rules with one name the widest limits: the rest is for the job_submit plug-in."""
    is_users: bool
    """Whether jobs may ask for it; a partition's own QOS is nobody's."""


def twin_qos(profile: ClusterProfile) -> list[TwinQos]:
    """The default QOS, those of partitions, and those that rules name."""
    rules, plugins = profile.slurm.qos, plugin_rules(profile)
    default = next((rule for rule in rules if rule.name is None and rule.partition is None and rule not in plugins), Qos())
    names = dict.fromkeys(rule.name for rule in rules if rule.name is not None)
    own = [(name, rule) for name in _names(profile) if (rule := _own_rule(profile, name))]
    return [
        TwinQos(name=DEFAULT_QOS, limits=default, is_users=True),
        *(TwinQos(name=partition_qos(name), limits=rule, is_users=False) for name, rule in own),
        *(TwinQos(name=name, limits=_widest([rule for rule in rules if rule.name == name]), is_users=True) for name in names),
    ]


def _own_rule(profile: ClusterProfile, partition: str) -> Qos | None:
    """The rule without a name that a partition's own QOS holds."""
    plugins = plugin_rules(profile)
    own = (rule for rule in profile.slurm.qos if rule.name is None and rule.partition == partition)
    return next((rule for rule in own if rule not in plugins), None)


def _widest(rules: Sequence[Qos]) -> Qos:
    return dataclasses.replace(
        rules[0],
        min_nodes=min(rule.min_nodes for rule in rules),
        max_nodes=_largest(rule.max_nodes for rule in rules),
        max_walltime_min=_longest_min(rules),
        max_gpus=_largest(rule.max_gpus for rule in rules),
        max_cpus=_largest(rule.max_cpus for rule in rules),
    )


def plugin_rules(profile: ClusterProfile) -> list[Qos]:
    """The rules that accounting cannot hold: several of one name, one for some of a partition's node types only, or one that a
    QOS would take over as it has no such limit of its own.
    """
    anywhere = {rule.name for rule in profile.slurm.qos if rule.name is not None or rule.partition is None}
    groups: dict[tuple[str | None, str | None], list[Qos]] = {}
    for rule in profile.slurm.qos:
        groups.setdefault((rule.name, None if rule.name in anywhere else rule.partition), []).append(rule)
    return [rule for rules in groups.values() if not _is_expressible(profile, rules) for rule in rules]


def _is_expressible(profile: ClusterProfile, rules: Sequence[Qos]) -> bool:
    return len(rules) == 1 and _is_for_all_types(profile, rules[0]) and not _is_taken_over(profile, rules[0])


def _is_taken_over(profile: ClusterProfile, rule: Qos) -> bool:
    """A limit of a partition's own QOS holds for each QOS in it that has no such limit."""
    if rule.name is not None or rule.partition is None:
        return False
    others = [other for other in profile.slurm.qos if other.name is not None and other.partition in (None, rule.partition)]
    return any(getattr(rule, key) is not None and getattr(other, key) is None for other in others for key in QOS_LIMITS)


def _is_for_all_types(profile: ClusterProfile, rule: Qos) -> bool:
    names = [rule.partition] if rule.partition else _names(profile)
    there = {key for name in names for key in partition_types(profile, name)}
    return not rule.node_types or there <= set(rule.node_types)


NO_ACCOUNT = "unset"
"""The default account where the cluster wants one named: nothing may be submitted to it."""

ACCOUNTS = ("proj", "proj_g", "proj@v100", "proj@a100", "proj@h100", "project_465000001", "proj-dtai-gh")
"""Accounts in the forms that sites want."""


def site_accounts(profile: ClusterProfile) -> tuple[str, ...]:
    """Those of ACCOUNTS that suit any node type of the profile; UsageError for a type that none suits."""
    suitable = {key: account_for(profile, key) for key in profile.node_types}
    return tuple(dict.fromkeys(suitable.values())) or ACCOUNTS[:1]


def account_for(profile: ClusterProfile, node_type: str) -> str:
    """The first of ACCOUNTS that may use nodes of that type."""
    suitable = [name for name in ACCOUNTS if is_allowed(profile, [node_type], name)]
    if not suitable:
        raise UsageError(
            f"{profile.name}: no account of tests/twin/accounting.py has the form for {node_type}; add one to ACCOUNTS"
        )
    return suitable[0]


def is_allowed(profile: ClusterProfile, node_types: Iterable[str], account: str) -> bool:
    """Whether the account has the form for one of these node types."""
    forms = [_account_form(profile, key) for key in node_types]
    return any(form is None or re.fullmatch(form.pattern, account) for form in forms)


def _account_form(profile: ClusterProfile, node_type: str) -> AccountForm | None:
    return profile.node_types[node_type].account_form or profile.slurm.account_form


def early_commands(profile: ClusterProfile) -> list[list[str]]:
    """Have to run before slurmctld starts: the cluster, and the QOS that slurm.conf names."""
    hidden = [qos.name for qos in twin_qos(profile) if not qos.is_users]
    return [["add", "cluster", profile.name], *([["add", "qos", ",".join(hidden)]] if hidden else [])]


def qos_commands(profile: ClusterProfile) -> list[list[str]]:
    """Have to run after slurmctld has started: only then does slurmdbd know the TRES gres/gpu. In any order."""
    return [_qos_command(profile, qos) for qos in twin_qos(profile)]


def account_commands(profile: ClusterProfile, accounts: Sequence[str], user: str) -> list[list[str]]:
    """The user may use every account and every QOS. After the QOS."""
    required = profile.slurm.account_required
    all_accounts = ",".join([*accounts, NO_ACCOUNT] if required else accounts)
    names = ",".join(dict.fromkeys([DEFAULT_QOS, *(qos.name for qos in twin_qos(profile) if qos.is_users)]))
    return [
        ["add", "account", ",".join(accounts)],
        *([["add", "account", NO_ACCOUNT, "GrpSubmitJobs=0"]] if required else []),
        ["add", "user", user, f"Account={all_accounts}", f"QosLevel={names}", f"DefaultQOS={DEFAULT_QOS}"],
        ["modify", "user", user, "set", f"DefaultAccount={NO_ACCOUNT if required else accounts[0]}"],
    ]


def _qos_command(profile: ClusterProfile, qos: TwinQos) -> list[str]:
    """Slurm makes the default QOS itself, and a partition's own is there already."""
    exists = qos.name == DEFAULT_QOS or not qos.is_users
    start = ["modify", "qos", qos.name, "set"] if exists else ["add", "qos", qos.name]
    return [*start, *limits(profile, qos)]


def limits(profile: ClusterProfile, qos: TwinQos) -> list[str]:
    """The limits of a QOS as sacctmgr writes them.

    DenyOnLimit refuses at submission what would otherwise stay pending forever; OverPartQOS has a QOS that is asked for count
    where the partition has one too. The limits of a user hold for the default QOS, where there is one: a profile gives them for
    the partition, and its other QOS are narrower.
    """
    rule = qos.limits
    over = rule.name is not None and any(not other.is_users for other in twin_qos(profile))
    is_default = rule.name is None or all(other.name for other in profile.slurm.qos)
    per_user = [_tres("MaxTRESPerUser", **_user_tres(profile))] if is_default else []
    known = [
        _tres("MinTRESPerJob", node=rule.min_nodes if rule.min_nodes > 1 else None),
        _tres("MaxTRESPerJob", node=rule.max_nodes, cpu=rule.max_cpus, gpu=_counted_gpus(profile, rule)),
        f"MaxWall={rule.max_walltime_min}" if rule.max_walltime_min else None,
        *per_user,
    ]
    return [f"Flags=DenyOnLimit{',OverPartQOS' if over else ''}", *(limit for limit in known if limit)]


def _counted_gpus(profile: ClusterProfile, rule: Qos) -> int | None:
    """None where Slurm does not count GPUs."""
    return None if profile.slurm.gpu_request == "none" else rule.max_gpus


def _user_tres(profile: ClusterProfile) -> dict[str, int | None]:
    rules = profile.slurm
    smt = max(kind.smt for kind in profile.node_types.values())
    return {"gpu": rules.max_gpus_per_user, "cpu": rules.max_cores_per_user and rules.max_cores_per_user * smt}


def _tres(key: str, **counts: int | None) -> str | None:
    names = {"gpu": "gres/gpu"}
    known = [f"{names.get(name, name)}={count}" for name, count in counts.items() if count is not None]
    return f"{key}={','.join(known)}" if known else None


SCRIPT = """-- The rules of {name} that accounting cannot hold, made by tests/twin.
local RULES = {rules}
local NODE_TYPES = {node_types}
local MEMORY = {memory}
local DEFAULT_PARTITION = {default}
local ANY = "any"

-- The type a job asks for by feature, by GPU or by partition; any where it does not say.
local function node_type(job)
  for name, kind in pairs(NODE_TYPES) do
    if kind.feature and job.features == kind.feature then return name end
    if kind.gres and job.tres_per_node and string.find(job.tres_per_node, ":" .. kind.gres .. ":", 1, true) then return name end
    if not kind.feature and not kind.gres and kind.partition and job.partition == kind.partition then return name end
  end
  return ANY
end

local function gpus(job)
  local per_node = job.tres_per_node and string.match(job.tres_per_node, "(%d+)$")
  return per_node and per_node * job.min_nodes or 0
end

local function fits(rule, job)
  local kind = node_type(job)
  return (rule.node_types == nil or kind == ANY or rule.node_types[kind])
    and job.min_nodes >= rule.min_nodes
    and (rule.max_nodes == nil or job.min_nodes <= rule.max_nodes)
    and (rule.minutes == nil or job.time_limit <= rule.minutes)
    and (rule.gpus == nil or gpus(job) <= rule.gpus)
end

local function refuse(text)
  slurm.log_user(text)
  return slurm.ERROR
end

function slurm_job_submit(job, partitions, user)
  local named, fitting = false, false
  for _, rule in ipairs(RULES) do
    if rule.qos == job.qos and (rule.partition == nil or rule.partition == (job.partition or DEFAULT_PARTITION)) then
      named = true
      fitting = fitting or fits(rule, job)
    end
  end
  if named and not fitting then return refuse("nodes and time limit fit no rule of this QOS and partition") end
  local memory = job.min_mem_per_node
  if MEMORY == "forbidden" and memory ~= nil then return refuse("--mem may not be given here") end
  if MEMORY == "required" and memory == nil then return refuse("--mem must be given here") end
  if MEMORY == "nonzero" and memory == 0 then return refuse("--mem=0 may not be given here") end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return slurm.SUCCESS
end
"""


def job_submit_lua(profile: ClusterProfile) -> str | None:
    """job_submit.lua beside slurm.conf; None where Slurm's own limits hold everything."""
    rules = plugin_rules(profile)
    if not rules and profile.slurm.memory_option is None:
        return None
    kinds = {
        key: _table({"feature": kind.constraint, "gres": kind.gres_type, "partition": kind.partition})
        for key, kind in profile.node_types.items()
    }
    return (
        SCRIPT.replace("{name}", profile.name)
        .replace("{rules}", "{\n  " + ",\n  ".join(map(_rule, rules)) + "\n}")
        .replace("{node_types}", "{" + ", ".join(f'["{key}"] = {kind}' for key, kind in kinds.items()) + "}")
        .replace("{default}", next((f'"{each.name}"' for each in partitions(profile) if each.is_default), "nil"))
        .replace("{memory}", f'"{profile.slurm.memory_option}"')
    )


def _rule(rule: Qos) -> str:
    text = _table(
        {
            "qos": rule.name,
            "partition": rule.partition,
            "min_nodes": rule.min_nodes,
            "max_nodes": rule.max_nodes,
            "minutes": rule.max_walltime_min,
            "gpus": rule.max_gpus,
        }
    )
    types = ", ".join(f'["{key}"] = true' for key in rule.node_types)
    return f"{text[:-1]}, node_types = {{{types}}}}}" if types else text


def _table(values: Mapping[str, str | int | None]) -> str:
    known = {key: f'"{value}"' if isinstance(value, str) else str(value) for key, value in values.items() if value is not None}
    return "{" + ", ".join(f"{key} = {value}" for key, value in known.items()) + "}"
