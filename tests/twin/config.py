"""Slurm's configuration files as text, the folder of a twin that holds them, and what slurmctld writes there of jobs that end."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from hpcddp.cluster.environment import Environment
from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.core.errors import UsageError
from tests.twin.rules import TwinPartition, is_allowed, job_submit_lua, partitions
from tests.twin.shape import Shape, cores, memory_mb

CLOUD = """
# Nodes of a cloud, which are powered down: Slurm judges requests for them and no slurmd is needed. Commands list them.
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3600"""


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
{_plugin_line(shape)}{CLOUD if shape.site.cloud else ""}

# A request that a partition can never fulfil is refused at submission, as is one without a valid account.
EnforcePartLimits=ALL
{_accounting_lines(shape)}
{_memory_lines(shape)}
JobCompType=jobcomp/filetxt
JobCompLoc={completions_file(folder)}

# Short waits, so that tests need not wait for them.
# batch_sched_delay: a job that comes soon after another is looked at only so many seconds later (default 3).
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
KillWait=5
MinJobAge=60

# Long waits where a busy machine would look like a broken one.
MessageTimeout={shape.site.message_timeout_s}
SlurmdTimeout={shape.site.slurmd_timeout_s}
BatchStartTimeout=60

{"".join(_node_lines(shape))}
{"".join(_partition_lines(shape))}"""


def _plugin_line(shape: Shape) -> str:
    """The script lies beside slurm.conf."""
    return "JobSubmitPlugins=lua" if job_submit_lua(shape.profile) else ""


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


def _node_lines(shape: Shape) -> Iterator[str]:
    if shape.site.cloud:
        return (f"NodeName={names} {_hardware(shape.profile, kind)} State=CLOUD\n" for _, kind, names in _by_type(shape))
    start = f"NodeHostname={shape.host} NodeAddr=127.0.0.1"
    return (f"NodeName={n.name} {start} Port={n.port} {_hardware(shape.profile, n.kind)}\n" for n in shape.nodes)


def _by_type(shape: Shape) -> Iterator[tuple[str, NodeType, str]]:
    """Each type with its nodes' names."""
    for key, nodes in groupby(shape.nodes, key=lambda node: node.type):
        yield key, shape.profile.node_types[key], ",".join(node.name for node in nodes)


def _hardware(profile: ClusterProfile, kind: NodeType) -> str:
    sockets = kind.sockets if kind.sockets and cores(kind) % kind.sockets == 0 else 1
    gres = f" Gres={_gres(kind)}:{kind.gpus}" if has_gres(profile, kind) else ""
    features = re.findall(r"[^&|()\[\]]+", kind.constraint or "")
    feature = f" Feature={','.join(features)}" if features else ""
    return (
        f"Sockets={sockets} CoresPerSocket={cores(kind) // sockets} ThreadsPerCore={kind.smt}"
        f" RealMemory={memory_mb(kind)}{gres}{feature}"
    )


def has_gres(profile: ClusterProfile, kind: NodeType) -> bool:
    """Whether Slurm counts the GPUs of such a node: a site that takes no option for them has no use for it."""
    return bool(kind.gpus) and (kind.gpu_request or profile.slurm.gpu_request) != "none"


def _gres(kind: NodeType) -> str:
    return f"gpu:{kind.gres_type}" if kind.gres_type else "gpu"


def _partition_lines(shape: Shape) -> Iterator[str]:
    names = {key: nodes for key, _, nodes in _by_type(shape)}
    for partition in partitions(shape.profile):
        nodes = ",".join(names[key] for key in partition.node_types)
        default = " Default=YES" if partition.is_default else ""
        yield f"PartitionName={partition.name}{default} Nodes={nodes} State=UP{_partition_limits(shape, partition)}\n"


def _partition_limits(shape: Shape, partition: TwinPartition) -> str:
    """Times are in minutes. Slurm counts memory per CPU, the profile per physical core."""
    given, profile = partition.limits, shape.profile
    smt = max(profile.node_types[key].smt for key in partition.node_types)
    limits = {
        "MinNodes": given.min_nodes,
        "MaxNodes": given.max_nodes,
        "MaxTime": given.max_walltime_min,
        "DefaultTime": given.default_walltime_min,
        "DefMemPerCPU": given.default_mb_per_core and given.default_mb_per_core // smt,
        "MaxMemPerCPU": given.max_mb_per_core and given.max_mb_per_core // smt,
        "OverSubscribe": "EXCLUSIVE" if profile.slurm.always_exclusive else None,
        **(_access(shape, partition) if shape.site.accounting else {}),
    }
    return "".join(f" {key}={value}" for key, value in limits.items() if value is not None)


def _access(shape: Shape, partition: TwinPartition) -> dict[str, str | None]:
    """Its QOS, and who may use it, where that is not everybody."""
    accounts = [name for name in shape.site.accounts if is_allowed(shape.profile, partition.node_types, name)]
    return {
        "QOS": partition.qos,
        "AllowQos": None if partition.allowed_qos is None else ",".join(partition.allowed_qos),
        "AllowAccounts": None if len(accounts) == len(shape.site.accounts) else ",".join(accounts),
    }


def gres_conf(shape: Shape) -> str:
    """gres.conf: device files of the twin's own stand in for GPUs."""
    return "".join(_gres_lines(shape))


def _gres_lines(shape: Shape) -> Iterator[str]:
    for _, kind, names in _by_type(shape):
        if not has_gres(shape.profile, kind):
            continue
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
StorageLoc={shape.database}
"""


FOLDERS = ("pid", "log", "state", "spool", "dev")

SOCKET_PATH_MAX = 107
"""Bytes that Linux gives the path of a Unix socket."""

NULL_DEVICE = os.makedev(1, 3)
"""Slurm sets CUDA_VISIBLE_DEVICES for device files only and never opens them: the null device does."""


def check_folder(shape: Shape) -> None:
    """UsageError unless a twin can live in its folder."""
    folder = shape.folder
    if any(character.isspace() for character in str(folder)):
        raise UsageError(f"{folder}: Slurm's configuration takes no path with a space: name another folder for the twin")
    longest = max(len(str(_step_socket(folder, node.name))) for node in shape.nodes)
    if longest > SOCKET_PATH_MAX:
        raise UsageError(f"{folder} is {longest - SOCKET_PATH_MAX} characters too long for a twin (sockets in it): name another")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: name another folder for the twin")


def _step_socket(folder: Path, node: str) -> Path:
    """The longest socket there will be: slurmstepd's, of the batch step of a job with five digits."""
    return folder / "spool" / node / f"{node}_10000.4294967294"


def write_folder(shape: Shape) -> None:
    """Everything the daemons read and write, before they start."""
    folder = shape.folder
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for node in () if shape.site.cloud else shape.nodes:
        (folder / "spool" / node.name).mkdir()
    for index in range(max(node.kind.gpus or 0 for node in shape.nodes)):
        os.mknod(folder / "dev" / f"gpu{index}", stat.S_IFCHR | 0o600, NULL_DEVICE)
    (folder / "slurm.conf").write_text(slurm_conf(shape), encoding="utf-8")
    if plugin := job_submit_lua(shape.profile):
        (folder / "job_submit.lua").write_text(plugin, encoding="utf-8")
    (folder / "gres.conf").write_text(gres_conf(shape), encoding="utf-8")
    own = Path("/etc/hosts").read_text(encoding="utf-8")
    (folder / "hosts").write_text(own + "".join(f"\n127.0.0.1 {node.name}" for node in shape.nodes) + "\n", encoding="utf-8")
    (folder / "slurmdbd.conf").touch(mode=0o600)
    (folder / "slurmdbd.conf").write_text(slurmdbd_conf(shape), encoding="utf-8")


def write_modules(environment: Environment, folder: Path, python: str) -> None:
    """`folder`/modulefiles with every module of the profile; the last one puts `folder`/bin with `python` first in PATH."""
    for text_file, text in modulefiles(environment, folder).items():
        text_file.parent.mkdir(parents=True, exist_ok=True)
        text_file.write_text(text, encoding="utf-8")
    _write_interpreters(folder / "bin", python)


def modulefiles(environment: Environment, folder: Path) -> dict[Path, str]:
    """The modulefiles: path -> text."""
    texts = {}
    for name in environment.modules:
        is_last = name == environment.modules[-1]
        path_line = f"prepend-path PATH {folder}/bin\n" if is_last else ""
        texts[folder / "modulefiles" / name] = f"#%Module1.0\nmodule-whatis {{{name}, as far as a twin has it}}\n{path_line}"
    return texts


def _write_interpreters(folder: Path, python: str) -> None:
    """Scripts and not links: a virtual environment is found from the path that Python was started by."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)


_LINE = re.compile(
    r"JobId=(?P<number>\d+) .*? Name=(?P<JobName>.*) JobState=(?P<State>\S+) Partition=.*"
    r" EndTime=(?P<End>\S+) NodeList=(?P<NodeList>\S+)"
    r"(?:.* ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\d+))?.* ExitCode=(?P<ExitCode>\S+)"
)


def completions_file(folder: Path) -> Path:
    """Of the twin in this folder: JobCompLoc."""
    return folder / "log" / "completions"


def completions(folder: Path) -> dict[str, dict[str, str]]:
    """Job id as sacct has it -> name, state, end, nodes and exit code of its last end, under sacct's names for them."""
    file = completions_file(folder)
    found = (_LINE.match(line) for line in (file.read_text().splitlines() if file.exists() else []))
    return dict(_job(match.groupdict()) for match in found if match)


def _job(job: dict[str, str]) -> tuple[str, dict[str, str]]:
    number, array, task = (job.pop(name) for name in ("number", "array", "task"))
    return (f"{array}_{task}" if array else number), job
