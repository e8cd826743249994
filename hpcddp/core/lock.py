"""A lock on a file system that several machines share. It needs no flock, which some mounts refuse (Lustre without `flock`) and
others keep to one machine (`localflock`).

The lock is a folder of numbered files. The highest number counts: with a holder's name in it the lock is held, empty it is free.
A process takes the lock by linking the next number, which only one of several can (open(2) advises link for NFS), and releases it
by emptying its own file. Numbers only grow: a process that decided too late finds a higher one and gives way.

A killed holder is noticed on its own machine at once, by its process; from another machine by its file's time, which a living
holder renews every RENEW_EVERY_S. Times are compared with that of a file just made: one clock, the file server's.

Why not flufl.lock 10.0, which links too? It passed five of the eight tests of tests/core/test_lock.py, and broke these rules:
a holder that was killed held on until its lifetime was over while its parent had not waited for it (a zombie counts as alive); a
stopped holder on the same machine lost the lock to the next process once its lifetime was over; and it named its machine
`localhost` (socket.getfqdn), as any machine may, so that the process of another login node is looked for on this one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import write_file


@dataclass(frozen=True, kw_only=True)
class HostProcess:
    """A process on a machine; `start` tells it from a later one of the same id."""

    host: str
    pid: int
    start: int | None

    @classmethod
    def here(cls, pid: int) -> HostProcess:
        """A process of this machine."""
        return cls(host=socket.gethostname(), pid=pid, start=process_start(pid))

    def is_alive(self) -> bool | None:
        """None where that is not known: on another machine, or another user's where /proc is hidden."""
        if self.host != socket.gethostname():
            return None
        start = process_start(self.pid)
        if start is not None:
            return start == self.start
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return None
        return False  # one's own that has ended, but that its parent has not waited for


def process_start(pid: int) -> int | None:
    """When a process of this machine started, in clock ticks after boot (proc(5), field 22 of stat); None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


RENEW_EVERY_S = 10.0

STALE_S = 60.0
"""A holder on another machine that gave no sign for so long is gone: no busy node or file server delays it that much."""


class HeldError(HpcddpError):
    """Another process holds the lock; the message says which."""


@dataclass(frozen=True)
class HeldLock:
    """The lock, held by this process."""

    file: Path

    def check(self) -> None:
        """HpcddpError when another machine took this process for dead, which had been stopped, and took the lock over."""
        if int(self.file.name) != _newest(self.file.parent):
            raise HpcddpError(f"{self.file.parent}: this process paused too long, and another took over. Run the command again.")


@contextlib.contextmanager
def exclusive_lock(folder: Path) -> Iterator[HeldLock]:
    """Holds the lock `folder` inside the block; HeldError at once where another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    held = HeldLock(_take(folder))
    released = threading.Event()
    renewal = threading.Thread(target=_renew, args=(held.file, released), daemon=True)
    renewal.start()
    try:
        yield held
    finally:
        released.set()
        renewal.join()
        with contextlib.suppress(FileNotFoundError):
            os.truncate(held.file, 0)


def _take(folder: Path) -> Path:
    """The file that makes this process the holder."""
    own = HostProcess.here(os.getpid())
    aside = folder / f".{own.host}.{own.pid}.{secrets.token_hex(4)}"
    write_file(aside, json.dumps(asdict(own)))
    try:
        while True:
            number = _newest(folder)
            _refuse_while_held(folder / str(number), now_s=aside.stat().st_mtime)
            file = folder / str(number + 1)
            with contextlib.suppress(FileExistsError):  # another process was faster: look again who holds it
                file.hardlink_to(aside)
                if _newest(folder) == number + 1:
                    _remove_older(folder, number + 1)
                    return file
                file.unlink(missing_ok=True)  # linked long after it was decided: the lock has moved on
    finally:
        aside.unlink()


def _refuse_while_held(file: Path, now_s: float) -> None:
    try:
        with file.open(encoding="utf-8") as text:  # opening makes NFS ask the server for content and time
            content, renewed_s = text.read(), os.fstat(text.fileno()).st_mtime
    except FileNotFoundError:
        return  # number 0, or removed by a newer holder just now
    if not content:
        return
    holder = HostProcess(**json.loads(content))
    silent_s = max(0.0, now_s - renewed_s)
    alive = holder.is_alive()
    if alive or (alive is None and silent_s < STALE_S):
        raise HeldError(f"process {holder.pid} on {holder.host}, last active {silent_s:.0f} s ago")


def _newest(folder: Path) -> int:
    """The highest number; a listing over NFS may lack the newest files, so the next numbers are tried by name."""
    listed = max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=0)
    return next(number for number in itertools.count(listed) if not (folder / str(number + 1)).exists())


def _remove_older(folder: Path, holder: int) -> None:
    for name in os.listdir(folder):
        if name.isdecimal() and int(name) < holder:
            (folder / name).unlink(missing_ok=True)


def _renew(file: Path, released: threading.Event) -> None:
    while not released.wait(RENEW_EVERY_S):
        with contextlib.suppress(OSError):  # a file server that is away for a moment; check() sees what matters
            os.utime(file)
