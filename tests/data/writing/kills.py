"""Something done in processes of its own, killed at random moments, or twice at once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

KILLS = 20


def killed_at_random(work: Callable[[Path], None], folder: Path) -> list[Path]:
    """KILLS times `work` on one of a few folders, killed somewhere in the first half of its time; then each folder to its end.

    Processes that the killed one had started end with it.
    """
    begin_s = time.monotonic()
    work(folder / "timed")
    duration_s = time.monotonic() - begin_s
    draws, roots = random.Random(7), [folder / str(number) for number in range(4)]
    for number in range(KILLS):
        process = started(work, roots[number % len(roots)])
        time.sleep(draws.uniform(0, duration_s / 2))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wait_for_group(process)
    for root in roots:
        work(root)
    return roots


def twice_at_once(work: Callable[[Path], None], root: Path) -> None:
    """Both must end well."""
    processes = [started(work, root) for _ in range(2)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]


def started(work: Callable[[Path], None], root: Path) -> int:
    """A fork of this process that does the work, and nothing else; with what it starts it is a process group."""
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        code = 1
        try:
            work(root)
            code = 0
        finally:
            os._exit(code)
    return process


def wait_for_group(group: int) -> None:
    """Until none of the process group runs, for 10 s at most."""
    deadline_s = time.monotonic() + 10
    while running := _running(group):
        assert time.monotonic() < deadline_s, f"{running} outlived {group}"
        time.sleep(0.01)


def _running(group: int) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group, *_ = file.read_text().rpartition(")")[2].split()
            if int(of_group) == group and state not in "ZX":
                found.append(int(file.parent.name))
    return found
