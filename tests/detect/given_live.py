"""A cluster as `scontrol --oneliner` and `sacctmgr -nP` write it, values made up; as hpcddp/detect reads it; and its profile.

Keys and their order: github.com/SchedMD/slurm@008eefc, src/api/node_info.c (slurm_sprint_node_table), src/api/partition_info.c.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.yaml_text import yaml_text
from hpcddp.detect.document import COMMENTS, Subject, document
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import live_node_types
from hpcddp.detect.nodes import LiveNode
from hpcddp.detect.partitions import Association, LivePartition, LiveQos
from hpcddp.detect.trial import TrialVerdict

VERDICT = TrialVerdict(gpu_request="gres", accounts=("proj",), account_required=True)


def node(name: str, gpus: int, partitions: tuple[str, ...], features: tuple[str, ...] = (), memory_mb: int = 500000) -> LiveNode:
    """A node of 2 x 16 cores with 2 threads each."""
    return LiveNode(
        name=name,
        states=("IDLE",),
        sockets=2,
        cores_per_socket=16,
        threads_per_core=2,
        cpus=64,
        memory_mb=memory_mb,
        gpus=(("a100", gpus),) if gpus else (),
        features=features,
        partitions=partitions,
    )


def partition(name: str, *, default: bool = False) -> LivePartition:
    """One with every limit."""
    return LivePartition(
        name=name,
        default=default,
        hidden=False,
        always_exclusive=False,
        is_up=True,
        min_nodes=2,
        max_nodes=8,
        max_walltime_min=1440,
        default_walltime_min=60,
        max_mb_per_cpu=8000,
        default_mb_per_cpu=4000,
        allowed_accounts=(),
        allowed_qos=("normal", "long"),
    )


def qos(name: str, *, max_walltime_min: int) -> LiveQos:
    """One with every limit."""
    return LiveQos(
        name=name,
        min_nodes=2,
        max_nodes=4,
        max_cpus=512,
        max_gpus=16,
        max_walltime_min=max_walltime_min,
        max_cpus_per_user=1024,
        max_gpus_per_user=32,
        max_jobs_per_user=100,
    )


GPU_NODES = (
    *(node(f"g{i}", 4, ("gpu",)) for i in range(1, 9)),
    *(node(f"h{i}", 4, ("gpu",), ("himem",), 900000) for i in (1, 2)),
)

ONE = LiveSlurm(
    nodes=GPU_NODES,
    partitions=(partition("gpu"),),
    config={
        "ClusterName": "one",
        "MaxArraySize": "1001",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageEnforce": "associations,limits,qos",
    },
    qos=(qos("normal", max_walltime_min=600), qos("long", max_walltime_min=1200)),
    associations=(Association(account="proj", qos=("normal", "long"), default_qos="normal"),),
)
"""Its only partition is `gpu`."""

TWO = LiveSlurm(
    nodes=(*GPU_NODES, *(node(f"c{i}", 0, ("cpu",)) for i in range(1, 4))),
    partitions=(partition("cpu", default=True), partition("gpu")),
    config=ONE.config,
    qos=ONE.qos,
    associations=ONE.associations,
)
"""The same with a partition of nodes without GPUs, which is the default."""


def detected(live: LiveSlurm, verdict: TrialVerdict = VERDICT) -> ClusterProfile:
    """The profile that detect would write, read again."""
    text = detected_text(live, verdict)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mine.yaml"
        file.write_text(text, encoding="utf-8")
        return read_profile(file)


def detected_text(live: LiveSlurm, verdict: TrialVerdict = VERDICT) -> str:
    """The file that detect would write."""
    types = live_node_types(live.nodes or ())
    return yaml_text(document(live, types, Subject(name="mine", date="2026-01-01", verdict=verdict)), COMMENTS)


CONFIG = """
ClusterName             = one
SLURM_VERSION           = 25.05.1
MaxArraySize            = 1001
AccountingStorageType   = accounting_storage/slurmdbd
AccountingStorageEnforce = associations,limits,qos
"""

DENIED = "echo 'slurm_load_node error: Access/permission denied' >&2; exit 1"

PARTITIONS = """\
PartitionName=gpu AllowAccounts=ALL AllowQos=normal,long Default=NO QoS=N/A DefaultTime=01:00:00 Hidden=NO MaxNodes=8 \
MaxTime=1-00:00:00 MinNodes=1 RootOnly=NO OverSubscribe=NO State=UP DefMemPerCPU=2048 MaxMemPerCPU=4096
PartitionName=cpu AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A DefaultTime=NONE Hidden=NO MaxNodes=UNLIMITED \
MaxTime=UNLIMITED MinNodes=0 RootOnly=NO OverSubscribe=EXCLUSIVE State=UP DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
"""


NODES = """\
NodeName=g1 Arch=x86_64 CoresPerSocket=16  CPUAlloc=0 CPUEfctv=60 CPUTot=64 CPULoad=0.00 AvailableFeatures=a100,nvlink \
ActiveFeatures=a100,nvlink Gres=gpu:a100:4(S:0-1) NodeAddr=g1 NodeHostName=g1 Version=25.05.1 OS=Linux 5.14.0 #1 SMP Mon Jan 5  \
RealMemory=515000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 CoreSpecCount=2 MemSpecLimit=4096 State=IDLE ThreadsPerCore=2 \
TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu  BootTime=None SlurmdStartTime=None \
CfgTRES=cpu=60,mem=515000M,gres/gpu=4
NodeName=c1 Arch=x86_64 CoresPerSocket=16  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.00 AvailableFeatures=(null) \
ActiveFeatures=(null) Gres=(null) NodeAddr=c1 NodeHostName=c1 RealMemory=256000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1 \
State=IDLE+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=cpu  BootTime=None SlurmdStartTime=None \
CfgTRES=cpu=64,mem=256000M CurrentWatts=n/a AveWatts=n/a Reason=bad DIMM [root@2026-11-23T14:59:28] Extra=rack 7 InstanceType=big
"""

QOS = """\
normal||||||0|1.000000
long|node=2|gres/gpu=16,node=4|gres/gpu=32|2-00:00:00|100|10|1.000000
"""

ASSOCIATIONS = "proj||long,normal|normal|200|\n"


def answers(folder: Path) -> dict[str, str]:
    """Scripts that answer so, from files named nodes, partitions, config, qos and associations."""
    texts = {"nodes": NODES, "partitions": PARTITIONS, "config": CONFIG, "qos": QOS, "associations": ASSOCIATIONS}
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"answer-{name}"
        files[name].write_text(text, encoding="utf-8")
    return {
        "scontrol": f"""case "$*" in
*--oneliner*nodes) cat {files["nodes"]};;
*--oneliner*partitions) cat {files["partitions"]};;
*config) cat {files["config"]};;
*) exit 1;; esac""",
        "sinfo": DENIED,
        "sacctmgr": f"""case "$*" in
*-nP*qos*) cat {files["qos"]};;
*-nP*assoc*) cat {files["associations"]};;
*) exit 1;; esac""",
        "sbatch": """case "$*" in
*--account=proj*--gpus-per-node=a100:4*) echo 'sbatch: Job 1 to start at ...' >&2;;
*--gpus-per-node*) echo 'sbatch: error: Invalid account' >&2; exit 1;;
*) echo 'sbatch: error: Requested node configuration is not available' >&2; exit 1;; esac""",
    }
