"""From a profile to nodes, configuration texts, accounting commands and modulefiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.environment import Environment
from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import Qos, SlurmRules
from hpcddp.core.errors import UsageError
from tests.twin.config import check_folder, gres_conf, modulefiles, slurm_conf
from tests.twin.controllers import Controllers
from tests.twin.rules import account_commands, qos_commands
from tests.twin.shape import CONTROLLER_PORTS, TWIN_PORTS, Node, Shape, expand, make_shape, node_kinds

THIN = NodeType(count=980, physical_cores=32, sockets=2, smt=4, memory_mb=246000, gpus=4)
FAT = NodeType(names="fat[01-02]", physical_cores=7, sockets=2, gpus=1, gres_type="v100", constraint="big")
RULES = SlurmRules(
    partition="prod",
    account_required=True,
    default_mb_per_core=7500,
    max_gpus_per_user=24,
    max_cores_per_user=100,
    default_walltime_min=120,
    qos=(Qos(max_nodes=16, max_walltime_min=1440), Qos(name="big", min_nodes=17, max_walltime_min=60, max_gpus=8, max_cpus=9)),
)
PROFILE = ClusterProfile(schema=1, name="two", title="two", node_types={"thin": THIN, "fat.1": FAT}, slurm=RULES)


def shape(folder: Path) -> Shape:
    """Two thin nodes and one fat one, with fixed ports."""
    kinds = [("thin-01", "thin"), ("thin-02", "thin"), ("fat01", "fat.1")]
    nodes = tuple(Node(name=name, type=key, kind=PROFILE.node_types[key], port=30010 + i) for i, (name, key) in enumerate(kinds))
    return Shape(profile=PROFILE, folder=folder, host="here", nodes=nodes, slurmctld_port=30001, slurmdbd_port=30002)


@pytest.mark.parametrize(
    ("node_list", "names"),
    [
        ("gn09", ["gn09"]),
        ("gn[01-03,07],login1", ["gn01", "gn02", "gn03", "gn07", "login1"]),
        ("r[8-10]", ["r8", "r9", "r10"]),
        ("r[1-2]n[01-02]x", ["r1n01x", "r1n02x", "r2n01x", "r2n02x"]),
    ],
)
def test_node_lists_are_read_as_slurm_reads_them(node_list: str, names: list[str]) -> None:
    """Ranges keep their leading zeros; several brackets multiply."""
    assert list(expand(node_list)) == names


def test_a_type_has_its_names_or_made_up_ones_up_to_the_cap() -> None:
    """980 nodes become as many as asked for; two stay two."""
    assert [name for name, _ in node_kinds(PROFILE, 3)] == ["thin-01", "thin-02", "thin-03", "fat01", "fat02"]


def test_ports_are_all_different() -> None:
    """Every daemon listens on its own."""
    shape = make_shape(PROFILE, Path("/t"), 40)
    ports = [shape.slurmctld_port, shape.slurmdbd_port, *(node.port for node in shape.nodes)]
    assert len(set(ports)) == len(ports) == 44


def test_controllers_have_other_ports_than_a_twin() -> None:
    """Both draw theirs when they boot, which they do beside each other, and bind them later."""
    (controllers,) = Controllers(Path("/t"))._shapes([PROFILE])
    assert {controllers.slurmctld_port, controllers.slurmdbd_port} <= set(CONTROLLER_PORTS) - set(TWIN_PORTS)
    assert make_shape(PROFILE, Path("/t"), 1).slurmctld_port in TWIN_PORTS


def test_nodes_and_partition_as_slurm_reads_them() -> None:
    """Sockets that do not divide the cores become one; memory limits are per logical CPU; unknown memory is made up."""
    lines = slurm_conf(shape(Path("/t"))).splitlines()
    assert lines[-5:] == [
        "NodeName=thin-01 NodeHostname=here NodeAddr=127.0.0.1 Port=30010 Sockets=2 CoresPerSocket=16 ThreadsPerCore=4"
        " RealMemory=246000 Gres=gpu:4",
        "NodeName=thin-02 NodeHostname=here NodeAddr=127.0.0.1 Port=30011 Sockets=2 CoresPerSocket=16 ThreadsPerCore=4"
        " RealMemory=246000 Gres=gpu:4",
        "NodeName=fat01 NodeHostname=here NodeAddr=127.0.0.1 Port=30012 Sockets=1 CoresPerSocket=7 ThreadsPerCore=1"
        " RealMemory=56000 Gres=gpu:v100:1 Feature=big",
        "",
        "PartitionName=prod Nodes=thin-01,thin-02,fat01 State=UP MaxTime=1440 DefaultTime=120 DefMemPerCPU=1875",
    ]


def test_gpus_are_device_files_of_the_twin() -> None:
    """A type in the request needs a type in gres.conf."""
    assert gres_conf(shape(Path("/t"))).splitlines() == [
        "NodeName=thin-01,thin-02 Name=gpu File=/t/dev/gpu[0-3]",
        "NodeName=fat01 Name=gpu Type=v100 File=/t/dev/gpu[0-0]",
    ]


def test_limits_go_to_their_qos_and_the_user_gets_all() -> None:
    """Limits per user hold for the default QOS; cores per user are counted as logical CPUs."""
    commands = [*qos_commands(PROFILE), *account_commands(PROFILE, ["a", "b"], "me")]
    assert [" ".join(command) for command in commands] == [
        "modify qos normal set Flags=DenyOnLimit MaxTRESPerJob=node=16 MaxWall=1440 MaxTRESPerUser=gres/gpu=24,cpu=400",
        "add qos big Flags=DenyOnLimit MinTRESPerJob=node=17 MaxTRESPerJob=cpu=9,gres/gpu=8 MaxWall=60",
        "add account a,b",
        "add account unset GrpSubmitJobs=0",
        "add user me Account=a,b,unset QosLevel=normal,big DefaultQOS=normal",
        "modify user me set DefaultAccount=unset",
    ]


def test_the_last_module_brings_python() -> None:
    """Every module of the profile can be loaded, with a slash in its name too."""
    files = modulefiles(Environment(modules=("profile/deep", "torch")), Path("/t"))
    assert list(files) == [Path("/t/modulefiles/profile/deep"), Path("/t/modulefiles/torch")]
    assert ["prepend-path PATH /t/bin" in text for text in files.values()] == [False, True]


def test_a_profile_without_slurm_has_no_twin() -> None:
    """The error says what a twin is shaped like."""
    local = ClusterProfile(schema=1, name="here", title="here", backend="local")
    with pytest.raises(UsageError, match="backend `local`"):
        make_shape(local, Path("/t"), 1)


@pytest.mark.parametrize(("name", "says"), [("a b", "space"), ("a" * 90, "too long"), ("", "not empty")])
def test_a_folder_that_cannot_hold_a_twin_is_refused(tmp_path: Path, name: str, says: str) -> None:
    """Before anything starts, and with the reason."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=says):
        check_folder(shape(tmp_path / name))
