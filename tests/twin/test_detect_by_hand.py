"""`hpcddp clusters detect` on sites whose slurm.conf, gres.conf and QOS are written by hand: it gives what Slurm says.

A round trip through the generator of twins could be wrong twice; here nothing comes from a profile. Nodes are those of a cloud
that nobody starts: the controller lists them and judges requests for them.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import read_profile
from hpcddp.detect.check import check_cluster
from hpcddp.detect.detect import Detected, detect_cluster
from tests.twin import daemons
from tests.twin.config import FOLDERS, NULL_DEVICE
from tests.twin.daemons import Daemon, ending_signals_raise, kill_marked, only_twin, stop
from tests.twin.shape import free_ports
from tests.twin.twin import Twins

GPUS = 8
"""Device files for gres.conf: {folder}/dev/gpu0 and so on."""

COMMON = """
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
EnforcePartLimits=ALL
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3600
"""
"""What every slurm.conf here begins with."""

SLURMDBD = """AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
PidFile={folder}/pid/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_by_hand
"""


@contextmanager
def slurm_by_hand(
    folder: Path, slurm_conf: str, gres_conf: str, qos: Sequence[str] = (), accounts: Sequence[str] = ()
) -> Iterator[daemons.Slurm]:
    """The Slurm of this process until the end of the block. In the texts {folder}, {host}, {port} and {dbd_port} are filled in.

    qos, accounts: commands of sacctmgr, before slurmctld starts and after; without any there is no slurmdbd.
    """
    slurm, started = daemons.Slurm(folder), list[Daemon]()
    with ExitStack() as stack:
        stack.enter_context(ending_signals_raise())
        stack.enter_context(only_twin(folder))
        stack.callback(kill_marked, folder)
        stack.callback(stop, started)
        _write(folder, slurm_conf, gres_conf)
        env = {**os.environ, **slurm.env}
        started.append(daemons.start_munged(folder, env))
        if qos or accounts:
            started.append(daemons.start_database(folder, env))
            started.append(daemons.start_slurmdbd(folder, env, folder))
        for command in qos:
            slurm.sacctmgr(command.split())
        started.append(daemons.start_slurmctld(folder, env))
        for command in accounts:
            slurm.sacctmgr(command.split())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in slurm.env.items():
            patch.setenv(name, value)
        yield slurm


def _write(folder: Path, slurm_conf: str, gres_conf: str) -> None:
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(GPUS):
        os.mknod(folder / "dev" / f"gpu{index}", stat.S_IFCHR | 0o600, NULL_DEVICE)
    port, dbd_port = free_ports(2)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurmdbd.conf").touch(mode=0o600)
    for name, text in {"slurm.conf": slurm_conf, "gres.conf": gres_conf, "slurmdbd.conf": SLURMDBD}.items():
        filled = text.format(folder=folder, host=host, port=port, dbd_port=dbd_port)
        (folder / name).write_text(filled, encoding="utf-8")


def rendered(*options: str, folder: Path) -> str:
    """What `hpcddp render` prints."""
    command = [sys.executable, "-m", "hpcddp", "render", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


PLAIN = (
    COMMON
    + """
ClusterName=plain
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName=n[1-3] State=CLOUD CPUs=16 RealMemory=64000 Gres=gpu:1
PartitionName=all Default=YES Nodes=ALL
"""
)

PLAIN_GRES = "NodeName=n[1-3] Name=gpu File={folder}/dev/gpu0\n"


def test_a_site_without_accounting(twins: Twins, tmp_path: Path) -> None:
    """Nothing is required; sacctmgr's refusal is no news, and the node that is down is."""
    twins.close()
    with slurm_by_hand(tmp_path / "plain", PLAIN, PLAIN_GRES) as slurm:
        slurm.run(["scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=power"])
        found, file = detect_cluster(None), tmp_path / "mine.yaml"
        file.write_text(found.text, encoding="utf-8")
        profile = read_profile(file)
        assert check_cluster(profile).of("differs") == []
        taken, message = slurm.test_only(rendered("--cluster", str(file), "--nodes", "2", folder=tmp_path))
        assert taken, message
    assert list(found.remarks) == ["nodes: 1 down: n3 (power)"]
    (kind,) = profile.node_types.values()
    assert (kind.count, kind.names, kind.gpus, kind.gres_type, kind.memory_mb) == (3, "n[1-3]", 1, None, 64000)
    assert (kind.physical_cores, kind.smt) == (16, 1)
    rules = profile.slurm
    assert (rules.partition, rules.account_required, rules.gpu_request) == ("all", False, "gres")
    assert [(rule.name, rule.max_walltime_min, rule.max_nodes) for rule in rules.qos] == [(None, None, None)]
    assert "Accounting is off" in str(profile.note)


MIXED = (
    COMMON
    + """
ClusterName=Mixed_1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={folder}/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
MaxArraySize=5001
GresTypes=gpu

NodeName=DEFAULT State=CLOUD Sockets=2
NodeName=c[01-06] CoresPerSocket=24 ThreadsPerCore=2 RealMemory=190000
NodeName=g[01-04] CoresPerSocket=32 ThreadsPerCore=2 RealMemory=515000 Gres=gpu:a100:4 \\
  Feature=a100,ib CoreSpecCount=4 MemSpecLimit=15000
NodeName=g[05-06] CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1030000 Gres=gpu:a100:4 Feature=a100,ib,himem
NodeName=m01 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=380000 Gres=gpu:v100:3,gpu:p100:1
NodeName=h[1-2] CoresPerSocket=8 ThreadsPerCore=1 RealMemory=96000 Gres=gpu:2

PartitionName=short Default=YES Nodes=c[01-06] MaxTime=120 DefaultTime=30 MaxNodes=4
PartitionName=gpu Nodes=g[01-06],m01 MaxTime=1-00:00:00 DefMemPerCPU=3000 MaxMemPerCPU=7000 \\
  QOS=gpus AllowQos=normal,long
PartitionName=lab Hidden=YES Nodes=h[1-2],g06 MaxTime=UNLIMITED OverSubscribe=EXCLUSIVE
"""
)

MIXED_GRES = """
NodeName=g[01-06] Name=gpu Type=a100 File={folder}/dev/gpu[0-3]
NodeName=m01 Name=gpu Type=v100 File={folder}/dev/gpu[0-2]
NodeName=m01 Name=gpu Type=p100 File={folder}/dev/gpu3
NodeName=h[1-2] Name=gpu File={folder}/dev/gpu[0-1]
"""

QOS = ("add cluster Mixed_1", "add qos gpus Flags=DenyOnLimit MaxWall=720")

ACCOUNTS = (
    "modify qos gpus set MaxTRESPerJob=gres/gpu=16,node=5",
    "add qos long Flags=DenyOnLimit,OverPartQOS MaxWall=1200 MaxTRESPerJob=node=2",
    "add qos staff MaxTRESPerJob=node=9",
    "modify qos normal set Flags=DenyOnLimit MaxTRESPerUser=gres/gpu=8,cpu=512 MaxSubmitJobsPerUser=50",
    "add account bio,physics",
    "add user root Account=bio,physics QosLevel=normal,long DefaultQOS=normal",
    "modify user root set DefaultAccount=bio",
)


@pytest.fixture(scope="module")
def mixed(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[daemons.Slurm]:
    """Three partitions of which one is hidden; a node is drained."""
    twins.close()
    with slurm_by_hand(tmp_path_factory.mktemp("mixed"), MIXED, MIXED_GRES, QOS, ACCOUNTS) as slurm:
        slurm.run(["scontrol", "update", "NodeName=g02", "State=DRAIN", "Reason=fan 3 is loud"])
        yield slurm


@pytest.fixture(scope="module")
def found(mixed: daemons.Slurm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Detected, Path]:
    """What detect writes there."""
    found, file = detect_cluster(None), tmp_path_factory.mktemp("found") / "mine.yaml"
    file.write_text(found.text, encoding="utf-8")
    return found, file


@pytest.fixture(scope="module")
def profile(found: tuple[Detected, Path]) -> ClusterProfile:
    """The same, read."""
    return read_profile(found[1])


def test_types_of_nodes(profile: ClusterProfile) -> None:
    found = {kind.names: (kind.gpus, kind.gres_type, kind.constraint) for kind in profile.node_types.values()}
    assert found == {
        "g[01-04]": (4, "a100", None),
        "g[05-06]": (4, "a100", "himem"),
        "m01": (3, "v100", None),
        "h[1-2]": (2, None, None),
        "c[01-06]": (0, None, None),
    }
    default = profile.node_type(None)
    assert default.names == "g[01-04]"
    assert (default.physical_cores, default.smt, default.memory_mb) == (60, 2, 500000)


def test_partitions(profile: ClusterProfile) -> None:
    """The default one has no GPUs; the hidden one is there; limits of a partition's QOS are its own."""
    there = profile.slurm.partitions
    assert list(there) == ["short", "gpu", "lab"]
    assert [partition.default for partition in there.values()] == [True, False, False]
    short, gpu, lab = there.values()
    assert (short.max_nodes, short.max_walltime_min, short.default_walltime_min) == (4, 120, 30)
    assert (gpu.max_nodes, gpu.max_walltime_min, gpu.max_mb_per_core, gpu.default_mb_per_core) == (5, 720, 14000, 6000)
    assert gpu.qos == ("long",)
    assert profile.node_types["v100"].max_mb_per_core == 7000  # one thread a core
    assert lab.max_walltime_min is None
    assert "hidden" in str(profile.facts["slurm.partitions.lab.default"].note)
    names = {name: {str(profile.node_types[key].names) for key in each.node_types} for name, each in there.items()}
    assert names == {"short": {"c[01-06]"}, "gpu": {"g[01-04]", "g[05-06]", "m01"}, "lab": {"h[1-2]", "g[05-06]"}}


def test_qos_accounts_and_limits(profile: ClusterProfile) -> None:
    rules = profile.slurm
    assert [(rule.name, rule.max_nodes, rule.max_walltime_min) for rule in rules.qos] == [(None, None, None), ("long", 2, 1200)]
    assert (rules.max_gpus_per_user, rules.max_cores_per_user, rules.max_array_size) == (8, 256, 5001)
    assert rules.account_required is False
    assert rules.gpu_request == "gres"
    assert "bio, physics" in str(profile.note)
    assert "(MaxSubmitJobs): 50" in str(profile.note)
    assert profile.name == "mixed-1"


def test_remarks(found: tuple[Detected, Path]) -> None:
    remarks = "\n".join(found[0].remarks)
    assert "1 drained: g02 (fan 3 is loud)" in remarks
    assert "also has 1 GPU of type p100" in remarks


def test_the_file_works_as_it_stands(mixed: daemons.Slurm, found: tuple[Detected, Path], tmp_path: Path) -> None:
    file, profile = found[1], read_profile(found[1])
    comparison = check_cluster(profile)
    assert comparison.of("differs") == []
    assert comparison.of("new") == []
    for key, kind in profile.node_types.items():
        if not kind.gpus:
            continue
        nodes = min(2, kind.count or 1)
        options = ["--cluster", str(file), "--nodes", str(nodes), "--node-type", key, "--set", "account=bio"]
        taken, message = mixed.test_only(rendered(*options, folder=tmp_path))
        assert taken, f"{key}: {message}"
