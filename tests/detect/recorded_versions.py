"""One cluster as `scontrol --json` and `sacctmgr --json` of several versions write it.

Keys and types are those of each version's data_parser plug-in (each file names its source); those of 24.05, 24.11 and 25.05
were compared with recorded answers of slurmrestd, which writes the same: github.com/rackslab/Slurm-web@69c8c03,
tests/assets/slurmrestd.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded"
VERSIONS = sorted(file.stem.removeprefix("slurm-") for file in FOLDER.glob("*.json"))


def recorded(version: str) -> dict[str, Any]:
    """Its documents: nodes, qos, associations."""
    documents: dict[str, Any] = json.loads((FOLDER / f"slurm-{version}.json").read_text(encoding="utf-8"))
    return documents


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


def answers(folder: Path, version: str) -> dict[str, str]:
    """Scripts that answer as that version does."""
    files = {}
    for name, document in {**recorded(version), "config": CONFIG, "partitions": PARTITIONS}.items():
        files[name] = folder / f"{version}-{name}"
        files[name].write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return {
        "scontrol": f"""case "$*" in
*--json*nodes) cat {files["nodes"]};;
*--oneliner*partitions) cat {files["partitions"]};;
*config) cat {files["config"]};;
*) exit 1;; esac""",
        "sinfo": DENIED,
        "sacctmgr": f"""case "$*" in
*--json*qos) cat {files["qos"]};;
*--json*assoc*) cat {files["associations"]};;
*) exit 1;; esac""",
        "sbatch": """case "$*" in
*--account=proj*--gpus-per-node=a100:4*) echo 'sbatch: Job 1 to start at ...' >&2;;
*--gpus-per-node*) echo 'sbatch: error: Invalid account' >&2; exit 1;;
*) echo 'sbatch: error: Requested node configuration is not available' >&2; exit 1;; esac""",
    }
