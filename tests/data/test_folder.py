"""Files are complete or not there, of two writers one waits, a disk may run full; tasks in processes, and how far they are."""

from __future__ import annotations

import errno
import io
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
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import process_start
from hpcddp.data.writing import folder
from hpcddp.data.writing.folder import LOG_EVERY_S, ProgressLine, Rate, part_file, remove_parts, root_lock, written_aside
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.pool import Advance, run_tasks
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.files import noise_digits, started, write_imagenet
from tests.machine import small_disk


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "a.u8"
    with written_aside(file) as out:
        out.write(b"12")
        assert [path.name for path in tmp_path.iterdir()] == [f".a.u8.{socket.gethostname()}.{os.getpid()}.part"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.u8"]
    with pytest.raises(KeyboardInterrupt), written_aside(file) as out:
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.u8": b"12"}


def test_a_link_in_the_part_files_place_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    part_file(tmp_path / "a.u8").symlink_to(tmp_path / "target")
    with written_aside(tmp_path / "a.u8") as out:
        out.write(b"new")
    assert (tmp_path / "target").read_bytes() == b"old"


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.u8.node7.12.part", "b.json.part", ".c"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".c", "b.json.part"]


def hold_for_ever(root: Path) -> None:
    with root_lock(root, print):
        (root / "held").touch()
        time.sleep(600)


def test_the_second_waits_and_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Too little is said before anything is written; with a quota, which does not show, finished files stay, and it goes on."""
    ballast, root = small / "ballast", small / "data"
    ballast.write_bytes(bytes(shutil.disk_usage(small).free - 50_000))
    with pytest.raises(HpcddpError, match=r"needs \d+ kB more in .*, where .* are free: \d+ kB are missing"):
        write(root)
    assert not list(root.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
        with pytest.raises(HpcddpError, match=r"No space left on device.*; \d+ kB are still to be written there; finished files"):
            write(root)
    assert not list(root.glob(".*.part"))
    os.truncate(ballast, 0)
    write(root)
    expected = tmp_path / "large" / "data"
    write(expected)
    assert content(root) == content(expected)


@pytest.mark.parametrize("write", [prepare, pack])
def test_what_a_killed_process_has_left_is_room(small: Path, write: Callable[[Path], None]) -> None:
    root = small / "data"
    root.mkdir()
    (root / ".train-00000.u8.node7.99.part").write_bytes(bytes(shutil.disk_usage(small).free - 10_000))
    write(root)
    assert not list(root.glob(".*.part"))


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob("[!.]*")}


def square(task: int, advance: Advance) -> tuple[int, int, int]:
    advance(task)
    return task * task, os.getpid(), torch.get_num_threads()


@pytest.mark.parametrize("processes", [1, 3])
def test_every_task_is_done_once(processes: int) -> None:
    done: list[int] = []
    threads = torch.get_num_threads()
    found = list(run_tasks(square, range(10), processes, done.append))
    assert sorted(result for result, _, _ in found) == [number**2 for number in range(10)]
    assert len({process for _, process, _ in found}) <= processes
    assert (os.getpid() in {process for _, process, _ in found}) == (processes == 1)
    assert {used for _, _, used in found} == {1}
    assert sum(done) == 45
    assert torch.get_num_threads() == threads


def full(task: int, advance: Advance) -> int:
    if task == 3:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "train-00003.u8")
    return task


def dies(task: int, advance: Advance) -> int:
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_the_first_that_fails_ends_all() -> None:
    with pytest.raises(OSError, match=r"No space left on device: 'train-00003.u8'"):
        list(run_tasks(full, range(10), 2, lambda _: None))
    with pytest.raises(HpcddpError, match=r"one of the processes ended by signal 9.*run again"):
        list(run_tasks(dies, range(10), 2, lambda _: None))


def test_processes_end_with_who_started_them(tmp_path: Path) -> None:
    def waits(task: int, advance: Advance) -> None:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(60)

    parent = os.fork()
    if parent == 0:
        list(run_tasks(waits, range(2), 2, lambda _: None))
        os._exit(1)
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 20
    while any(process_start(int(child.name)) for child in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_the_rate_and_the_time_left() -> None:
    rate = Rate("samples")
    assert rate.line(400, 1000, 5.0) == "400 of 1,000 samples (40 %)"
    assert rate.line(600, 1000, 25.0) == "600 of 1,000 samples (60 %), 10/s, 40 s left"
    assert rate.line(1000, 1000, 65.0) == "1,000 of 1,000 samples (100 %), 10/s"
    fast = Rate("samples")
    fast.line(0, 72_000_000, 0.0)
    assert fast.line(4_321_000, 72_000_000, 10.0) == "4,321,000 of 72,000,000 samples (6 %), 430,000/s, 3 min left"
    assert Rate("files").line(0, 0, 0.0) == "0 of 0 files (0 %)"


def test_a_log_has_a_line_now_and_then() -> None:
    for out, first in ((io.StringIO(), "0 of 8 samples (0 %)\n"), (Terminal(), "\r\x1b[K0 of 8 samples (0 %)")):
        times_s = iter(number * LOG_EVERY_S / 4 for number in (0, *range(10)))
        progress = ProgressLine("samples", out, lambda times_s=times_s: next(times_s))  # type: ignore[misc]
        for done in range(9):
            progress(done, 8)
        lines = out.getvalue()
        assert lines.startswith(first)
        assert lines.endswith("\n")
        assert lines.count("\n") == (1 if out.isatty() else 3)
        assert "8 of 8 samples (100 %)" in lines.splitlines()[-1]
        progress(8, 8)
        assert out.getvalue() == lines
