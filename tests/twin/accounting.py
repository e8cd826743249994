"""What sacctmgr is told: accounts, the user, and the QOS of a profile with their limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import AccountForm, Qos
from hpcddp.core.errors import UsageError
from tests.twin.partitions import TwinQos, twin_qos
from tests.twin.shape import DEFAULT_QOS

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
