"""Runs whose data are copied to each node's own disk: what they train on, what is recorded, and what stays behind.

Folders on a node's own disk: where they may be, and that none outlives the process that needs it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import TrainingLaunch
from hpcddp.core.lock import process_start
from hpcddp.core.point import Data
from hpcddp.core.schema import decode_record
from hpcddp.core.start_up import start_up
from hpcddp.worker.staging import KEEP_VARIABLE, disk_folder, remove_left, removed_at_end, room_in
from tests.data.files import write_mnist
from tests.worker import given
from tests.worker.forked import Ran, ran

pytestmark = pytest.mark.dear


def train(folder: Path, root: Path, stage: str, disk: Path | None = None, **how: Any) -> Ran:
    """4 ranks on 2 nodes, whose disk is a folder that the profile names; evaluated."""
    disk = disk or folder / "disk"
    disk.mkdir(parents=True, exist_ok=True)
    profile = {"node_types": {"cpu": {"local_disk_path": str(disk)}}, "default_node_type": "cpu"}
    data = Data(name="mnist", root=str(root), stage=stage)  # type: ignore[arg-type]
    what = given.point(4, nodes=2, data=data, loader_workers_per_rank=how.pop("workers", 0), evaluate=True)
    return ran(folder / "study", what, profile=profile, **how)


def launch_of(found: Ran) -> TrainingLaunch:
    return decode_record(TrainingLaunch, found.read("launch.json"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder, train=200, evaluation=20)
    (folder / "notes").write_text("not read")
    return folder


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, root: Path, disk: Path) -> Ran:
    return train(tmp_path_factory.mktemp("staged"), root, "tmpdir", disk, workers=1)


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Ran:
    return train(tmp_path_factory.mktemp("direct"), root, "none", workers=1)


def test_a_copy_trains_the_same(staged: Ran, direct: Ran) -> None:
    """But times with and without one are never pooled: they read from other disks."""
    for key in ("loss_first", "loss_last", "evaluation"):
        assert staged.end[key] == direct.end[key]
    launch, without = launch_of(staged), launch_of(direct)
    assert (launch.point, without.data.staging) == (without.point, None)
    assert launch.env_id != without.env_id
    assert launch.versions == {**without.versions, "stage": "tmpdir"}


def test_each_node_has_its_own_copy_and_none_stays(staged: Ran, root: Path, disk: Path) -> None:
    data = launch_of(staged).data
    assert data.staging is not None
    size = sum(file.stat().st_size for file in root.glob("*-ubyte"))
    assert [(node.host, node.files, node.copied_bytes) for node in data.staging.nodes] == [(f"node{n}", 4, size) for n in (0, 1)]
    assert {Path(node.folder).parent for node in data.staging.nodes} == {disk}
    assert len({node.folder for node in data.staging.nodes}) == 2
    assert data.staging.wait_s >= max(node.copy_s + node.check_s for node in data.staging.nodes)
    assert (data.root, list(disk.iterdir())) == (str(root), [])
    assert "kB copied to each of 2 nodes in" in staged.outcomes[0].output


def test_the_copy_is_no_start_up(staged: Ran) -> None:
    launch = launch_of(staged)
    assert launch.data.staging is not None
    longer = dataclasses.replace(launch.data.staging, wait_s=launch.data.staging.wait_s - 0.25)
    shorter = dataclasses.replace(launch, data=dataclasses.replace(launch.data, staging=longer))
    found, with_part = start_up(staged.attempt, launch), start_up(staged.attempt, shorter)
    assert found is not None
    assert with_part is not None
    assert with_part.until_first_step_s - found.until_first_step_s == pytest.approx(0.25)


def test_broken_data_are_named_where_they_come_from(tmp_path: Path) -> None:
    """The copy is gone when somebody reads the sentence."""
    write_mnist(tmp_path / "data")
    (tmp_path / "data/train-images-idx3-ubyte").write_bytes(b"no images")
    reason = train(tmp_path, tmp_path / "data", "tmpdir", may_fail=True).end["reason"]
    assert f"{tmp_path}/data/train-images-idx3-ubyte starts with" in reason
    assert "/disk" not in reason
    assert gone(tmp_path / "disk" / "copy")  # by a process that outlives a rank which was ended with another


def test_data_that_do_not_fit_are_refused_before_copying(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data")
    with (tmp_path / "data/train-images-idx3-ubyte").open("r+b") as file:
        file.truncate(2**43)
    reason = train(tmp_path, tmp_path / "data", "tmpdir", may_fail=True).end["reason"]
    assert "the data need 8.8 TB, but" in reason
    assert "Set workload.data.stage to none, or local_disk_path" in reason
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_root_that_is_not_there_is_refused_as_ever(tmp_path: Path) -> None:
    found = train(tmp_path, tmp_path / "nothing", "tmpdir", may_fail=True)
    assert f"in {tmp_path}/nothing (no such folder on" in found.end["reason"]


def test_runs_of_one_job_share_a_copy(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEP_VARIABLE, "1")
    disk, stagings, left = tmp_path / "disk", [], []
    for number, folder in enumerate((root, root, shutil.copytree(root, tmp_path / "other"))):
        stagings.append(launch_of(train(tmp_path / f"run{number}", folder, "tmpdir", disk)).data.staging)
        left.append(sorted(path.name for path in disk.iterdir() if path.is_dir()))
    assert [staging.reused for staging in stagings if staging] == [False, True, False]
    assert left[0] == left[1]
    assert not set(left[1]) & set(left[2])
    assert len(left[2]) == 2


HOLDER = "import sys, time; from pathlib import Path; from hpcddp.worker.staging import removed_at_end\n" + (
    "with removed_at_end(Path(sys.argv[1])): (Path(sys.argv[1]) / 'data').touch(); print('made', flush=True); time.sleep(60)"
)


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


def remover_of(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def gone(folder: Path) -> bool:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and any(folder.parent.iterdir()):
        time.sleep(0.01)
    return not any(folder.parent.iterdir())


def test_the_profiles_folder_comes_first(tmp_path: Path) -> None:
    env = {"SLURM_TMPDIR": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}
    assert disk_folder(str(tmp_path), env) == tmp_path
    assert disk_folder(None, env) == tmp_path
    assert disk_folder(None, {}) == Path("/tmp")
    with pytest.raises(HpcddpError, match="local_disk_path, cannot be written to"):
        disk_folder("/proc/nowhere", env)
    with pytest.raises(HpcddpError, match=r"local_disk_path `\$NO_SUCH_DISK`: \$NO_SUCH_DISK is not set"):
        disk_folder("$NO_SUCH_DISK", env)


def test_a_folder_that_other_nodes_have_is_refused(tmp_path: Path) -> None:
    """Every node would write the whole of the data to the same file system."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} lustre rw 0 0\n")
    with pytest.raises(HpcddpError, match=r"is lustre, not a disk of the node. Set local_disk_path"):
        room_in(tmp_path, mounts)
    mounts.write_text(f"tmpfs {tmp_path} tmpfs rw 0 0\n")
    room = room_in(tmp_path, mounts)
    available = int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line).split()[1])
    assert (room.filesystem, room.free_bytes <= 0.6 * 1024 * available) == ("tmpfs", True)


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    folder = tmp_path / "disk" / "copy"
    folder.mkdir(parents=True)
    (folder / "old").touch()
    with removed_at_end(folder):
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a b\n$(touch x)").mkdir()
    assert gone(folder)


FAILING = """
import pathlib, sys, time
from hpcddp.worker.staging import removed_at_end
folder = pathlib.Path(sys.argv[1])
try:
    with removed_at_end(folder):
        raise ValueError
except ValueError:
    time.sleep(0.2)
    print(folder.is_dir())
"""


def test_a_folder_stays_while_an_error_is_recorded(tmp_path: Path) -> None:
    """Other ranks of the node would miss it, and theirs would be the first error."""
    folder = tmp_path / "disk" / "copy"
    folder.parent.mkdir()
    assert subprocess.check_output([sys.executable, "-c", FAILING, str(folder)], text=True) == "True\n"
    assert gone(folder)


def test_a_folder_goes_with_a_killed_process(tmp_path: Path) -> None:
    folder = tmp_path / "disk" / "copy"
    folder.parent.mkdir()
    with holder(folder) as process:
        process.kill()
    assert gone(folder)


def test_what_a_killed_job_left_goes_with_the_next(tmp_path: Path) -> None:
    """Slurm kills all processes of a step at once, and the one that would remove the folder; a folder in use stays."""
    left, used = tmp_path / "mine-1.example.org", tmp_path / "mine-2.example.org"
    with holder(left) as process, holder(used) as living:
        remover = remover_of(process)
        os.kill(remover, signal.SIGKILL)
        process.kill()
        process.wait()
        while process_start(remover) is not None:
            time.sleep(0.01)
        assert left.exists()
        remove_left(tmp_path, "mine-*")
        assert sorted(path.name for path in tmp_path.iterdir()) == [used.name, f"{used.name}.lock"]
        living.kill()
