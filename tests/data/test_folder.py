"""Files are complete or not there, of two writers one goes after the other, and a disk may run full: here a small tmpfs."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.data.writing import folder
from hpcddp.data.writing.folder import part_file, remove_parts, root_lock, written_aside
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.digits import noise_digits
from tests.data.files import write_imagenet
from tests.data.writing.kills import started
from tests.small_disk import small_disk


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """Until then it is a hidden one that names machine and process; a block that fails leaves what was there."""
    file = tmp_path / "a.u8"
    with written_aside(file) as out:
        out.write(b"12")
        assert [path.name for path in tmp_path.iterdir()] == [f".a.u8.{socket.gethostname()}.{os.getpid()}.part"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.u8"]
    with pytest.raises(KeyboardInterrupt), written_aside(file) as out:
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.u8": b"12"}


def test_a_link_in_the_part_files_place_is_never_written_through(tmp_path: Path) -> None:
    """Its target stays as it was."""
    (tmp_path / "target").write_bytes(b"old")
    part_file(tmp_path / "a.u8").symlink_to(tmp_path / "target")
    with written_aside(tmp_path / "a.u8") as out:
        out.write(b"new")
    assert (tmp_path / "target").read_bytes() == b"old"


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """Hidden part files of any machine; nothing else."""
    for name in (".a.u8.node7.12.part", "b.json.part", ".c"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".c", "b.json.part"]


def hold_for_ever(root: Path) -> None:
    with root_lock(root, print):
        (root / "held").touch()
        time.sleep(600)


def test_the_second_waits_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with the process's number and machine; it goes on when the first is done, or was killed."""
    monkeypatch.setattr(folder, "POLL_EVERY_S", 0.01)
    holder = started(hold_for_ever, tmp_path)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    remarks: queue.SimpleQueue[str] = queue.SimpleQueue()
    entered = threading.Event()
    thread = threading.Thread(target=take, args=(tmp_path, remarks, entered))
    thread.start()
    assert f"process {holder} on " in remarks.get(timeout=60)
    assert not entered.wait(0.1)
    os.kill(holder, signal.SIGKILL)
    thread.join(60)
    os.waitpid(holder, 0)
    assert entered.is_set()
    assert remarks.empty()


def take(root: Path, remarks: queue.SimpleQueue[str], entered: threading.Event) -> None:
    with root_lock(root, remarks.put):
        entered.set()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Is an OSError at once; nobody waits for it."""
    with pytest.raises(OSError, match="missing"), root_lock(tmp_path / "missing", print):
        pass


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as disk:
        yield disk


def prepare(root: Path) -> None:
    """0.7 MB in six shards."""
    options = {"digits": noise_digits(150, 9), "copies": 2, "variants": ("plain", "flipped", "rotated"), "seed": 1}
    prepare_bigmnist(root, progress=lambda done, total: None, processes=2, shard_samples=150, **options)  # type: ignore[arg-type]


def pack(root: Path) -> None:
    """Pictures that lie on another disk."""
    folder = root.parents[1] / "folder"
    if not folder.exists():
        write_imagenet(folder, per_class=4)
    pack_imagenet(folder, root, progress=lambda done, total: None, processes=2, samples_per_shard=4)


@pytest.mark.parametrize("write", [prepare, pack])
def test_a_disk_that_runs_full_ends_with_a_sentence(small: Path, write: Callable[[Path], None], tmp_path: Path) -> None:
    """Too little is said before anything is written; where that does not show, as with a quota, finished files stay, nothing half
    written does, and once there is room it goes on to what it would have been.
    """
    ballast, root = small / "ballast", small / "data"
    ballast.write_bytes(bytes(shutil.disk_usage(small).free - 50_000))
    with pytest.raises(HpcddpError, match=r"needs \d+ kB more in .*, where .* are free: \d+ kB are missing"):
        write(root)
    assert not list(root.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
        with pytest.raises(HpcddpError, match=r"No space left on device.*; \d+ kB are still to be written there; what is"):
            write(root)
    assert not list(root.glob(".*.part"))
    os.truncate(ballast, 0)
    write(root)
    expected = tmp_path / "large" / "data"
    write(expected)
    assert content(root) == content(expected)


@pytest.mark.parametrize("write", [prepare, pack])
def test_what_a_killed_process_has_left_is_room(small: Path, write: Callable[[Path], None]) -> None:
    """Its half files go before anything is written."""
    root = small / "data"
    root.mkdir()
    (root / ".train-00000.u8.node7.99.part").write_bytes(bytes(shutil.disk_usage(small).free - 10_000))
    write(root)
    assert not list(root.glob(".*.part"))


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob("[!.]*")}
