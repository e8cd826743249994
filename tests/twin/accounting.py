"""What sacctmgr is told: accounts, the user, and the QOS of a profile with their limits."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import Qos
from tests.twin.shape import DEFAULT_QOS

NO_ACCOUNT = "unset"
"""The default account where the cluster wants one named: nothing may be submitted to it."""


def cluster_command(profile: ClusterProfile) -> list[str]:
    """Has to run before slurmctld starts."""
    return ["add", "cluster", profile.name]


def account_commands(profile: ClusterProfile, accounts: Sequence[str], user: str) -> list[list[str]]:
    """Have to run after slurmctld has started: only then does slurmdbd know the TRES gres/gpu.

    The user may use every account and every QOS.
    """
    required = profile.slurm.account_required
    all_accounts = ",".join([*accounts, NO_ACCOUNT] if required else accounts)
    names = ",".join([DEFAULT_QOS, *(qos.name for qos in profile.slurm.qos if qos.name is not None)])
    return [
        *(_qos_command(profile, qos) for qos in profile.slurm.qos),
        ["add", "account", ",".join(accounts)],
        *([["add", "account", NO_ACCOUNT, "GrpSubmitJobs=0"]] if required else []),
        ["add", "user", user, f"Account={all_accounts}", f"QosLevel={names}", f"DefaultQOS={DEFAULT_QOS}"],
        ["modify", "user", user, "set", f"DefaultAccount={NO_ACCOUNT if required else accounts[0]}"],
    ]


def _qos_command(profile: ClusterProfile, qos: Qos) -> list[str]:
    """Slurm makes the default QOS itself."""
    start = ["modify", "qos", DEFAULT_QOS, "set"] if qos.name is None else ["add", "qos", qos.name]
    return [*start, *limits(profile, qos)]


def limits(profile: ClusterProfile, qos: Qos) -> list[str]:
    """The limits of a QOS as sacctmgr writes them.

    DenyOnLimit refuses at submission what would otherwise stay pending forever. The limits of a user hold for the default
    QOS: a profile gives them for the partition, and its other QOS are narrower.
    """
    per_user = [_tres("MaxTRESPerUser", **_user_tres(profile))] if qos.name is None else []
    known = [
        _tres("MinTRESPerJob", node=qos.min_nodes if qos.min_nodes > 1 else None),
        _tres("MaxTRESPerJob", node=qos.max_nodes, cpu=qos.max_cpus, gpu=qos.max_gpus),
        f"MaxWall={qos.max_walltime_min}" if qos.max_walltime_min else None,
        *per_user,
    ]
    return ["Flags=DenyOnLimit", *(limit for limit in known if limit)]


def _user_tres(profile: ClusterProfile) -> dict[str, int | None]:
    rules = profile.slurm
    smt = max(kind.smt for kind in profile.node_types.values())
    return {"gpu": rules.max_gpus_per_user, "cpu": rules.max_cores_per_user and rules.max_cores_per_user * smt}


def _tres(key: str, **counts: int | None) -> str | None:
    names = {"gpu": "gres/gpu"}
    known = [f"{names.get(name, name)}={count}" for name, count in counts.items() if count is not None]
    return f"{key}={','.join(known)}" if known else None
