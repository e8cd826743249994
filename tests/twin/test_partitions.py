"""A profile with several partitions, rules by QOS and node type, and forms of accounts becomes a Slurm that holds all of it."""

from __future__ import annotations

import pytest

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import AccountForm, Partition, Qos, SlurmRules
from tests.twin.controllers import Controller, Controllers
from tests.twin.rules import job_submit_lua, partitions

A100 = NodeType(
    count=40, physical_cores=32, smt=2, memory_mb=500000, gpus=4, gres_type="a100", constraint="a100",
    account_form=AccountForm(pattern=".*@a100", sentence="accounts end in @a100"),
)  # fmt: skip
V100 = NodeType(count=1000, physical_cores=20, memory_mb=180000, gpus=4, constraint="v100-16g|v100-32g")
FAT = NodeType(count=10, physical_cores=24, memory_mb=700000, gpus=8, partition="fat", max_mb_per_core=20000)
PROFILE = ClusterProfile(
    schema=1,
    name="three",
    title="three partitions",
    node_types={"a100": A100, "v100": V100, "fat": FAT},
    slurm=SlurmRules(
        partitions={
            "small": Partition(node_types=("a100",), default=True, max_nodes=8, max_walltime_min=600, max_mb_per_core=15000),
            "large": Partition(node_types=("v100",), min_nodes=2, default_mb_per_core=7500, qos=("long",)),
        },
        qos=(
            Qos(partition="small", max_walltime_min=300),
            Qos(partition="large", max_nodes=91, max_walltime_min=120),
            Qos(partition="large", min_nodes=92, max_nodes=183, max_walltime_min=360),
            Qos(partition="fat", max_walltime_min=60),
            Qos(name="long", max_nodes=4, max_walltime_min=6000),
            Qos(name="dev", partition="small", max_nodes=2, max_walltime_min=300, max_gpus=4),
        ),
    ),
)


@pytest.fixture(scope="module")
def three(controllers: Controllers) -> Controller:
    """The controller of that profile."""
    return controllers.get(PROFILE)


def test_partitions_of_the_profile_become_slurms() -> None:
    """Those it lists, those that node types and rules name, each with its own nodes; one is Slurm's default."""
    found = {partition.name: partition for partition in partitions(PROFILE)}
    assert {name: partition.node_types for name, partition in found.items()} == {
        "small": ("a100",),
        "large": ("v100",),
        "fat": ("fat",),
    }
    assert [partition.is_default for partition in found.values()] == [True, False, False]
    assert found["large"].allowed_qos == ("normal", "long")
    assert found["fat"].limits.max_mb_per_core == 20000


def test_a_plug_in_is_written_only_where_limits_do_not_do() -> None:
    """Slurm's accounting holds one rule a name; a rule for each range of nodes takes a plug-in."""
    assert "minutes = 360" in str(job_submit_lua(PROFILE))
    plain = ClusterProfile(schema=1, name="one", title="one", node_types={"v100": V100}, slurm=SlurmRules(partition="gpu"))
    assert job_submit_lua(plain) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--partition=small --nodes=8 --gres=gpu:a100:4", None),
        ("--nodes=8 --gres=gpu:a100:4", None),
        ("--partition=small --nodes=9", "Node count specification invalid"),
        ("--partition=small --nodes=1 --gres=gpu:v100:1", "Requested node configuration is not available"),
        ("--partition=small --nodes=1 --constraint=v100-32g", "Requested node configuration is not available"),
        ("--partition=small --time=300", None),
        ("--partition=small --time=301", "QOSMaxWallDurationPerJobLimit"),
        ("--partition=small --time=600 --qos=long", None),
        ("--partition=small --time=601 --qos=long", "Requested time limit is invalid"),
        ("--partition=small --nodes=1 --qos=dev --gres=gpu:4", None),
        ("--partition=small --nodes=2 --qos=dev --gres=gpu:4", "QOSMaxGRESPerJob"),
        ("--partition=large --nodes=2 --qos=dev --account=proj", "Invalid qos"),
        ("--partition=large --nodes=2 --account=proj", None),
        ("--partition=large --nodes=1 --account=proj", "Node count specification invalid"),
        ("--partition=large --nodes=91 --time=120 --account=proj", None),
        ("--partition=large --nodes=91 --time=121 --account=proj", "fit no rule"),
        ("--partition=large --nodes=92 --time=360 --account=proj", None),
        ("--partition=large --nodes=184 --account=proj", "fit no rule"),
        ("--partition=fat --time=60 --nodes=1 --gres=gpu:8 --account=proj", None),
        ("--partition=fat --time=61 --nodes=1 --account=proj", "QOSMaxWallDurationPerJobLimit"),
        ("--partition=small --account=proj", "Invalid account"),
    ],
)
def test_each_partition_and_qos_has_its_own_limits(three: Controller, options: str, says: str | None) -> None:
    """Nodes, time, GPUs, features, QOS and accounts are held to the partition and the QOS asked for."""
    taken, message = three.test_only(f"#!/bin/bash\n#SBATCH --account=proj@a100 --time=10 --mem=1000\n#SBATCH {options}\n")
    assert taken == (says is None), message
    assert says is None or says in message
