"""One at a time on a file system that several machines share: a lock that needs no flock, which some mounts refuse (Lustre
without `flock`) and others keep to one machine (`localflock`).

The lock is a folder of numbered files. The highest number counts: with a holder's name in it the lock is held, empty it is free.
To take it is to link the next number, which one of several succeeds in (open(2) advises link for NFS); to let it go is to empty
one's own. Numbers only grow, so that whoever was late with a decision finds a higher one and gives way.

A holder that was killed is noticed on its own machine at once, by its process; from another machine by its file's time, which a
living holder renews every BEAT_S. Times are compared with that of a file just made: one clock, the file server's.
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

from hpcddp.cluster.ownership import check_links, owner_of, trusted_gids
from hpcddp.core.errors import HpcddpError
from hpcddp.core.processes import process_start
from hpcddp.core.run_root import Study
from hpcddp.core.umask import not_for_others

BEAT_S = 10.0

STALE_S = 60.0
"""A holder on another machine that gave no sign for so long is gone: no busy node or file server delays it that much."""


class HeldError(HpcddpError):
    """Another process holds the lock; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A process on a machine; `start` tells it from a later one of the same id."""

    host: str
    pid: int
    start: int | None


@dataclass(frozen=True)
class Held:
    """The lock, held by this process."""

    file: Path

    def check(self) -> None:
        """HpcddpError when another machine took this process for dead, which had been stopped, and took the lock over."""
        if _number(self.file) != _newest(self.file.parent):
            raise HpcddpError(f"{self.file.parent}: this process stood still for long and another has taken over; run it again")


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[Held]:
    """Holds the lock `folder` meanwhile; HeldError at once where another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    mine = Held(_take(folder))
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(mine.file, over), daemon=True)
    beating.start()
    try:
        yield mine
    finally:
        over.set()
        beating.join()
        with contextlib.suppress(FileNotFoundError):
            os.truncate(mine.file, 0)


def _take(folder: Path) -> Path:
    """The file that makes this process the holder."""
    name = f".{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
    aside = folder / name
    me = Holder(host=socket.gethostname(), pid=os.getpid(), start=process_start(os.getpid()))
    aside.write_text(json.dumps(asdict(me)), encoding="utf-8")
    try:
        while True:
            number = _newest(folder)
            _refuse_while_held(folder / str(number), now_s=aside.stat().st_mtime)
            mine = folder / str(number + 1)
            with contextlib.suppress(FileExistsError):  # somebody was faster: who is it?
                mine.hardlink_to(aside)
                if _newest(folder) == number + 1:
                    _tidy(folder, number + 1)
                    return mine
                mine.unlink(missing_ok=True)  # linked long after it was decided: the lock has moved on
    finally:
        aside.unlink()


def _refuse_while_held(file: Path, now_s: float) -> None:
    try:
        with file.open(encoding="utf-8") as text:  # opening makes NFS ask the server for content and time
            told, renewed_s = text.read(), os.fstat(text.fileno()).st_mtime
    except FileNotFoundError:
        return  # number 0, or tidied away meanwhile
    if not told:
        return
    holder = Holder(**json.loads(told))
    silent_s = max(0.0, now_s - renewed_s)
    lives = _lives(holder)
    if lives or (lives is None and silent_s < STALE_S):
        raise HeldError(f"process {holder.pid} on {holder.host}, which gave a sign of life {silent_s:.0f} s ago")


def _lives(holder: Holder) -> bool | None:
    """None where this cannot be told: on another machine, or another user's where /proc is hidden."""
    if holder.host != socket.gethostname():
        return None
    start = process_start(holder.pid)
    if start is not None:
        return start == holder.start
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    return False  # one's own that has ended, but that its parent has not asked about


def _newest(folder: Path) -> int:
    """The highest number; what a listing does not show yet is asked for by name."""
    listed = max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=0)
    return next(number for number in itertools.count(listed) if not (folder / str(number + 1)).exists())


def _number(file: Path) -> int:
    return int(file.name)


def _tidy(folder: Path, holder: int) -> None:
    for name in os.listdir(folder):
        if name.isdecimal() and int(name) < holder:
            (folder / name).unlink(missing_ok=True)


def _beat(file: Path, over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        with contextlib.suppress(OSError):  # a file server that is away for a moment; check() sees what matters
            os.utime(file)


@contextlib.contextmanager
def study_lock(study: Study, denied: str | None = None) -> Iterator[Held]:
    """Holds the study's lock meanwhile; HpcddpError says who else does, or that nothing can be written there: `denied`, with the
    reason in its braces, or else who may.
    """
    check_links(study)
    with contextlib.ExitStack() as stack:
        try:
            with not_for_others(trusted_gids()):
                study.submit_lock.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(only_one(study.submit_lock))
        except HeldError as error:
            text = f"{study.folder}: another hpcddp is at work here: {error}. Try again when it is done"
            raise HpcddpError(text) from error
        except OSError as error:
            words = denied or f"nothing can be changed there ({{}}); it belongs to {owner_of(study.folder)}"
            raise HpcddpError(f"{study.folder}: {words.format(error.strerror)}") from error
        yield held
