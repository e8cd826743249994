"""One cluster as `scontrol --oneliner` and `sacctmgr -nP` write it; values made up.

Keys and their order: github.com/SchedMD/slurm@008eefc, src/api/node_info.c (slurm_sprint_node_table), src/api/partition_info.c.
"""

from __future__ import annotations

from pathlib import Path

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
