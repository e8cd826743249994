"""The text of Slurm's answers, field by field; a field that is not there is unknown."""

from __future__ import annotations

import dataclasses
import re

import pytest

from hpcddp.detect.accounting import Association, LiveQos, associations_of_text, qos_of_text
from hpcddp.detect.fields import NO_LIMIT
from hpcddp.detect.nodes import LiveNode, nodes_of_text
from hpcddp.detect.partitions import LivePartition, partitions_of_text
from tests.detect.recorded_answers import ASSOCIATIONS, NODES, PARTITIONS, QOS

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


def test_nodes() -> None:
    """Cores, memory, GPUs and features, with what is reserved for the system; a drained node has its reason."""
    gpu, cpu = nodes_of_text(NODES)
    assert gpu == GPU_NODE
    assert (gpu.physical_cores, gpu.smt, gpu.job_memory_mb) == (30, 2, 510904)
    assert (cpu.gpus, cpu.trouble, cpu.reason, cpu.physical_cores) == ((), "drained", "bad DIMM", 32)


def test_partitions() -> None:
    """Limits, memory per CPU, whole nodes, the default."""
    gpu, cpu = partitions_of_text(PARTITIONS)
    assert gpu == GPU
    assert (cpu.default, cpu.always_exclusive, cpu.max_nodes, cpu.max_walltime_min) == (True, True, NO_LIMIT, NO_LIMIT)
    assert (cpu.max_mb_per_cpu, cpu.default_walltime_min, cpu.allowed_qos) == (NO_LIMIT, NO_LIMIT, ())


def test_accounting() -> None:
    """Limits of QOS, and the accounts of a user; nothing in a column is no limit."""
    normal, long = qos_of_text(QOS)
    assert long == LONG
    assert (normal.max_walltime_min, normal.max_nodes, normal.max_jobs_per_user) == (NO_LIMIT, NO_LIMIT, NO_LIMIT)
    expected = Association(account="proj", qos=("long", "normal"), default_qos="normal", max_jobs=200)
    assert associations_of_text(ASSOCIATIONS) == (expected,)


@pytest.mark.parametrize("change", ["", "word", "(null)", "-1"])
@pytest.mark.parametrize("key", re.findall(r" (\w+)=", NODES.split("BootTime")[0]))
def test_a_missing_or_strange_field_is_unknown(key: str, change: str) -> None:
    """Left out or of another kind: everything else is read as before."""
    strange = re.sub(rf" {key}=\S*", f" {key}={change}" if change else "", NODES, count=1)
    found = nodes_of_text(strange)
    differ = [each.name for each in dataclasses.fields(LiveNode) if getattr(found[0], each.name) != getattr(GPU_NODE, each.name)]
    assert len(differ) <= 1
    assert found[1:] == nodes_of_text(NODES)[1:]


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
