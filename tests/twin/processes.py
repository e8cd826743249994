"""Processes of a twin: started, watched, found again and stopped.

Every process of a twin, its jobs' included, has TWIN_FOLDER=<its folder> in its environment, or a parent that has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hpcddp.core.errors import HpcddpError

MARK = "TWIN_FOLDER"
POLL_S = 0.1
ANSWER_S = 60.0
"""How long a daemon may take to answer: only a failing boot on a busy machine comes near it."""

STOP_S = 5.0
"""How long a process gets between SIGTERM and SIGKILL."""


class Daemon:
    """A process in the foreground of its own session, so that Ctrl-C in a terminal does not reach it."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def check(self) -> None:
        """HpcddpError with the end of the log when it has ended."""
        if self.process.poll() is not None:
            raise HpcddpError(f"{self.name} ended with status {self.process.returncode}:\n{self.log_tail()}")

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join([f"{self.log}:", *text.splitlines()[-lines:]])


def wait_until(
    ready: Callable[[], bool], daemons: Sequence[Daemon], what: str, timeout_s: float, show: Callable[[], str] = str
) -> None:
    """Returns once `ready()`; HpcddpError when a daemon ends, with the end of its log, or when time is over, with `show()`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        for daemon in daemons:
            daemon.check()
        if time.monotonic() > deadline:
            raise HpcddpError(f"{what} did not come in {timeout_s:g} s\n{show()}")
        time.sleep(POLL_S)


def wait_for_answer(daemon: Daemon, answers: Callable[[], bool]) -> Daemon:
    """The daemon, once it answers; HpcddpError with the end of its log when it does not."""
    wait_until(answers, [daemon], f"an answer of {daemon.name}", ANSWER_S, daemon.log_tail)
    return daemon


def stop(daemons: Sequence[Daemon]) -> None:
    """SIGTERM to all, SIGKILL to those still there after STOP_S."""
    for daemon in daemons:
        daemon.process.terminate()
    deadline = time.monotonic() + STOP_S
    for daemon in daemons:
        try:
            daemon.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()


def marked(folder: Path) -> list[int]:
    """Ids of the living processes of the twin in `folder`, this one and its parents left out."""
    parents = dict(_parents())
    own = set(_line(os.getpid(), parents))
    with_mark = {pid for pid in parents if _has_mark(pid, folder)} - own
    return sorted(pid for pid in parents if pid not in own and with_mark.intersection(_line(pid, parents)))


def kill_marked(folder: Path) -> None:
    """SIGKILL until none is left: a process may fork while it is being looked for."""
    deadline = time.monotonic() + STOP_S
    while (pids := marked(folder)) and time.monotonic() < deadline:
        for pid in pids:
            _kill(pid)
        time.sleep(POLL_S)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _line(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """`pid`, its parent, and so on up to the first process."""
    while pid in parents:
        yield pid
        pid = parents[pid]


def _parents() -> Iterator[tuple[int, int]]:
    """Every living process and its parent; one that only waits to be reaped is not living."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z":
                yield int(entry.name), int(parent)


def _has_mark(pid: int, folder: Path) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(f"{MARK}={folder}") in variables
