"""Tasks in several processes come to what they come to in one, and nothing outlives who started them."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import process_start
from hpcddp.data.writing.pool import Advance, run_tasks


def square(task: int, advance: Advance) -> tuple[int, int, int]:
    """With the process and its threads."""
    advance(task)
    return task * task, os.getpid(), torch.get_num_threads()


@pytest.mark.parametrize("processes", [1, 3])
def test_every_task_is_done_once(processes: int) -> None:
    """In so many processes at most, each with one thread; what they report adds up."""
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
    """With its own error; a process that was killed is an error, too, with the signal."""
    with pytest.raises(OSError, match=r"No space left on device: 'train-00003.u8'"):
        list(run_tasks(full, range(10), 2, lambda _: None))
    with pytest.raises(HpcddpError, match=r"one of the processes was ended by signal 9.*run again"):
        list(run_tasks(dies, range(10), 2, lambda _: None))


def test_processes_end_with_who_started_them(tmp_path: Path) -> None:
    """Killed without a chance to end them."""

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
