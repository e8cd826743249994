"""A cluster's answers as hpcddp/detect reads them, and the profile that comes of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.yaml_text import yaml_text
from hpcddp.detect.accounting import Association, LiveQos
from hpcddp.detect.document import COMMENTS, Subject, document
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import live_node_types
from hpcddp.detect.nodes import LiveNode
from hpcddp.detect.partitions import LivePartition
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
