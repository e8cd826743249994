"""Something done in processes of its own, killed at random moments, or twice at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

KILLS = 20


def killed_at_random(work: Callable[[Path], None], folder: Path) -> list[Path]:
    """KILLS times `work` on one of a few folders, killed somewhere in the first half of its time; then each folder to its end."""
    begin_s = time.monotonic()
    work(folder / "timed")
    duration_s = time.monotonic() - begin_s
    draws, roots = random.Random(7), [folder / str(number) for number in range(4)]
    for number in range(KILLS):
        process = started(work, roots[number % len(roots)])
        time.sleep(draws.uniform(0, duration_s / 2))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    for root in roots:
        work(root)
    return roots


def twice_at_once(work: Callable[[Path], None], root: Path) -> None:
    """Both must end well."""
    processes = [started(work, root) for _ in range(2)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]


def started(work: Callable[[Path], None], root: Path) -> int:
    """A fork of this process that does the work, and nothing else."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work(root)
            code = 0
        finally:
            os._exit(code)
    return process
