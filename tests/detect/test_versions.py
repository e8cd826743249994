"""The JSON of Slurm 23.02 to 25.05 says the same, and a field that a version lacks is unknown."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from hpcddp.detect.accounting import Association, LiveQos, associations_of_json, qos_of_json
from hpcddp.detect.fields import NO_LIMIT
from hpcddp.detect.nodes import LiveNode, nodes_of_json
from hpcddp.detect.partitions import LivePartition, partitions_of_text
from tests.detect.recorded_versions import PARTITIONS, VERSIONS, recorded

GPU_NODE = LiveNode(
    name="g1",
    states=("IDLE",),
    sockets=2,
    cores_per_socket=16,
    threads_per_core=2,
    cpus=64,
    effective_cpus=60,
    system_cores=2,
    memory_mb=515000,
    system_memory_mb=4096,
    gpus=(("a100", 4),),
    features=("a100", "nvlink"),
    partitions=("gpu",),
)
GPU = LivePartition(
    name="gpu",
    default=False,
    hidden=False,
    root_only=False,
    always_exclusive=False,
    is_up=True,
    min_nodes=1,
    max_nodes=8,
    max_walltime_min=1440,
    default_walltime_min=60,
    max_mb_per_cpu=4096,
    default_mb_per_cpu=2048,
    allowed_accounts=(),
    denied_accounts=(),
    allowed_qos=("normal", "long"),
)
LONG = LiveQos(
    name="long",
    min_nodes=2,
    max_nodes=4,
    max_cpus=NO_LIMIT,
    max_gpus=16,
    max_walltime_min=2880,
    max_cpus_per_user=NO_LIMIT,
    max_gpus_per_user=32,
    max_jobs_per_user=100,
    priority=10,
    usage_factor=1.0,
)


def test_versions() -> None:
    """Those that the profile of a cluster may come from today."""
    assert set(VERSIONS) >= {"23.11", "24.05", "24.11", "25.05"}


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes(version: str) -> None:
    """Cores, memory, GPUs and features, with what is reserved for the system; a drained node has its reason."""
    gpu, cpu = nodes_of_json(recorded(version)["nodes"])
    assert gpu == GPU_NODE
    assert (gpu.physical_cores, gpu.smt, gpu.job_memory_mb) == (30, 2, 510904)
    assert (cpu.gpus, cpu.trouble, cpu.reason, cpu.physical_cores) == ((), "drained", "bad DIMM", 32)


def test_partitions() -> None:
    """Limits, memory per CPU, whole nodes, the default."""
    gpu, cpu = partitions_of_text(PARTITIONS)
    assert gpu == GPU
    assert (cpu.default, cpu.always_exclusive, cpu.max_nodes, cpu.max_walltime_min) == (True, True, NO_LIMIT, NO_LIMIT)
    assert (cpu.max_mb_per_cpu, cpu.default_walltime_min, cpu.allowed_qos) == (NO_LIMIT, NO_LIMIT, ())


@pytest.mark.parametrize("version", VERSIONS)
def test_accounting(version: str) -> None:
    """Limits of QOS, and the accounts of a user; numbers that stand for no limit are no limits."""
    normal, long = qos_of_json(recorded(version)["qos"])
    assert long == LONG
    assert (normal.max_walltime_min, normal.max_nodes, normal.max_jobs_per_user) == (NO_LIMIT, NO_LIMIT, NO_LIMIT)
    expected = Association(account="proj", qos=("normal", "long"), default_qos="normal", max_jobs=200)
    assert associations_of_json(recorded(version)["associations"]) == (expected,)


READERS: dict[str, Callable[[Any], Any]] = {
    "nodes": nodes_of_json,
    "qos": qos_of_json,
    "associations": associations_of_json,
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("part", READERS)
def test_a_missing_or_strange_field_is_unknown(version: str, part: str) -> None:
    """Each key of each entry left out, null, or of another kind: everything else is read as before."""
    document = recorded(version)[part]
    (name,) = document
    for key in document[name][0]:
        for change in ("absent", None, {"new": 1}, [1], 7, "word"):
            strange = copy.deepcopy(document)
            if change == "absent":
                del strange[name][0][key]
            else:
                strange[name][0][key] = change
            found = READERS[part](strange)
            assert READERS[part](document)[1:] == found[-len(document[name]) + 1 :] or len(document[name]) == 1


def test_text() -> None:
    """A line of `scontrol --oneliner show partitions` of 22.05."""
    line = (
        "PartitionName=gpu AllowGroups=ALL DenyAccounts=guest AllowQos=normal,long AllocNodes=ALL Default=YES QoS=part"
        " DefaultTime=01:00:00 Hidden=NO MaxNodes=8 MaxTime=1-00:00:00 MinNodes=1 RootOnly=NO OverSubscribe=NO State=UP"
        " DefMemPerCPU=2048 MaxMemPerNode=UNLIMITED"
    )
    (found,) = partitions_of_text(line)
    assert (found.default, found.hidden, found.max_walltime_min, found.default_walltime_min) == (True, False, 1440, 60)
    assert (found.default_mb_per_cpu, found.max_mb_per_cpu, found.qos) == (2048, NO_LIMIT, "part")
    assert found.allows(("proj", "guest"))
    assert not found.allows(("guest",))
