"""Slurm's configuration files as text. What a line is for is said in the file itself, where a reader of a twin finds it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from hpcddp.cluster.profile import NodeType
from hpcddp.cluster.slurm_rules import SlurmRules
from tests.twin.completions import completions_file
from tests.twin.shape import Node, Shape, cores, memory_mb

PARTITION = "batch"
"""The partition of a profile that names none; only this one is Slurm's default, as jobs of other profiles must name theirs."""


def munge_socket(folder: Path) -> Path:
    """Where the twin's own munged listens."""
    return folder / "munge.sock"


def slurm_conf(shape: Shape) -> str:
    """slurm.conf."""
    folder, munge = shape.folder, munge_socket(shape.folder)
    return f"""# The Slurm twin of {shape.profile.name}, made by tests/twin.
ClusterName={shape.profile.name}
SlurmctldHost={shape.host}(127.0.0.1)
SlurmctldPort={shape.slurmctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire: a requeued job starts again only once its old credential is over (default 120 s).
AuthInfo=cred_expire=5,socket={munge}

StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld
SlurmdPidFile={folder}/pid/%n
SlurmdLogFile={folder}/log/%n.log

# Many nodes on one host, each with the shape that NodeName claims and not the host's.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu

# A request that a partition can never fulfil is refused at submission, as is one without a valid account.
EnforcePartLimits=ALL
{_accounting_lines(shape)}
{_memory_lines(shape)}
JobCompType=jobcomp/filetxt
JobCompLoc={completions_file(folder)}

# Short waits, so that tests need not wait for them.
SchedulerParameters=sched_interval=2,bf_interval=2
KillWait=5
MinJobAge=60

# Long waits where a busy machine would look like a broken one.
MessageTimeout={shape.site.message_timeout_s}
SlurmdTimeout={shape.site.slurmd_timeout_s}
BatchStartTimeout=60

{"".join(_node_line(shape, node) for node in shape.nodes)}
{_partition_line(shape)}"""


def _accounting_lines(shape: Shape) -> str:
    if not shape.site.accounting:
        return "AccountingStorageType=accounting_storage/none"
    return f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={shape.slurmdbd_port}
AccountingStoragePass={munge_socket(shape.folder)}
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment"""


def _memory_lines(shape: Shape) -> str:
    """What sites have that enforce memory without cgroups."""
    if not shape.site.memory_kill:
        return "JobAcctGatherType=jobacct_gather/none"
    return """JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill"""


def _node_line(shape: Shape, node: Node) -> str:
    kind = node.kind
    sockets = kind.sockets if kind.sockets and cores(kind) % kind.sockets == 0 else 1
    gres = f" Gres={_gres(kind)}:{kind.gpus}" if kind.gpus else ""
    feature = f" Feature={kind.constraint}" if kind.constraint else ""
    return (
        f"NodeName={node.name} NodeHostname={shape.host} NodeAddr=127.0.0.1 Port={node.port}"
        f" Sockets={sockets} CoresPerSocket={cores(kind) // sockets} ThreadsPerCore={kind.smt}"
        f" RealMemory={memory_mb(kind)}{gres}{feature}\n"
    )


def _gres(kind: NodeType) -> str:
    return f"gpu:{kind.gres_type}" if kind.gres_type else "gpu"


def _partition_line(shape: Shape) -> str:
    rules = shape.profile.slurm
    default = "" if rules.partition else " Default=YES"
    names = ",".join(node.name for node in shape.nodes)
    return f"PartitionName={rules.partition or PARTITION}{default} Nodes={names} State=UP{_partition_limits(shape)}\n"


def _partition_limits(shape: Shape) -> str:
    """Times are in minutes. Slurm counts memory per CPU, the profile per physical core."""
    rules = shape.profile.slurm
    smt = max(node.kind.smt for node in shape.nodes)
    limits = {
        "MaxTime": _longest_min(rules),
        "DefaultTime": rules.default_walltime_min,
        "DefMemPerCPU": rules.default_mb_per_core and rules.default_mb_per_core // smt,
        "MaxMemPerCPU": rules.max_mb_per_core and rules.max_mb_per_core // smt,
    }
    return "".join(f" {key}={value}" for key, value in limits.items() if value is not None)


def _longest_min(rules: SlurmRules) -> int | None:
    """The longest job any QOS allows, minutes; None as soon as one has no limit."""
    times = [qos.max_walltime_min for qos in rules.qos]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def gres_conf(shape: Shape) -> str:
    """gres.conf: device files of the twin's own stand in for GPUs."""
    return "".join(_gres_lines(shape))


def _gres_lines(shape: Shape) -> Iterator[str]:
    for kind, nodes in groupby((n for n in shape.nodes if n.kind.gpus), key=lambda n: n.kind):
        names = ",".join(node.name for node in nodes)
        gres_type = f" Type={kind.gres_type}" if kind.gres_type else ""
        yield f"NodeName={names} Name=gpu{gres_type} File={shape.folder}/dev/gpu[0-{(kind.gpus or 1) - 1}]\n"


def slurmdbd_conf(shape: Shape) -> str:
    """slurmdbd.conf; slurmdbd wants it readable by its user only. The database is found by MYSQL_UNIX_PORT."""
    return f"""AuthType=auth/munge
AuthInfo=socket={munge_socket(shape.folder)}
DbdHost={shape.host}
DbdAddr=127.0.0.1
DbdPort={shape.slurmdbd_port}
SlurmUser=root
PidFile={shape.folder}/pid/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""
