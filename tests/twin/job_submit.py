"""What sites hold by a job_submit plug-in, since Slurm has no limit of its own for it: rules that share a QOS, memory options."""

from __future__ import annotations

from collections.abc import Mapping

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import Qos
from tests.twin.partitions import partitions, plugin_rules

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
