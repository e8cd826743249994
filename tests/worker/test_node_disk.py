"""Folders on a node's own disk: where they may be, and that none outlives the process that needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.core.processes import process_start
from hpcddp.worker.node_disk import disk_folder, remove_left, removed_at_end, room_in

HOLDER = "import sys, time; from pathlib import Path; from hpcddp.worker.node_disk import removed_at_end\n" + (
    "with removed_at_end(Path(sys.argv[1])): (Path(sys.argv[1]) / 'data').touch(); print('made', flush=True); time.sleep(60)"
)


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that holds the folder for a minute."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


def remover_of(process: subprocess.Popen[str]) -> int:
    """The one child of the process."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def gone(folder: Path) -> bool:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and any(folder.parent.iterdir()):
        time.sleep(0.01)
    return not any(folder.parent.iterdir())


def test_the_profiles_folder_comes_first(tmp_path: Path) -> None:
    """Its variables are the node's; a place that cannot be written to is passed over, or refused where the profile names it."""
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
    with pytest.raises(HpcddpError, match="is lustre, no disk of the node's own: name one as local_disk_path"):
        room_in(tmp_path, mounts)
    mounts.write_text(f"tmpfs {tmp_path} tmpfs rw 0 0\n")
    room = room_in(tmp_path, mounts)
    available = int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line).split()[1])
    assert (room.filesystem, room.free_bytes <= 0.6 * 1024 * available) == ("tmpfs", True)


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    """It is empty at first, whatever lay there, and nobody else's to read."""
    folder = tmp_path / "disk" / "copy"
    folder.mkdir(parents=True)
    (folder / "old").touch()
    with removed_at_end(folder):
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a b\n$(touch x)").mkdir()
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
