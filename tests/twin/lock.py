"""One twin at a time on a machine, and none left behind by a process that was killed."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from hpcddp.core.errors import HpcddpError
from tests.twin.processes import kill_marked

LOCK = Path("/tmp/hpcddp-twin.lock")
"""Fixed, as TMPDIR differs between sessions of one machine."""

CONTROLLERS_LOCK = Path("/tmp/hpcddp-controllers.lock")
"""Of controllers, which have no nodes: they may be up beside a twin."""


_up: list[Path] = []
"""Folders of this process's twins: it would wait for itself forever."""


@contextmanager
def only_twin(folder: Path, lock: Path = LOCK) -> Iterator[None]:
    """Waits until no other twin of this lock is up; HpcddpError when any is of this process.

    The lock file names the folder of the last twin: what is left of it, its process having been killed, is killed.
    """
    if _up:
        raise HpcddpError(f"this process has a twin up already, in {_up[0]}: close it first")
    with lock.open("a+", encoding="utf-8") as file:
        _wait_for(file)
        _clean_up_after(file)
        file.write(str(folder))
        file.flush()
        _up.append(folder)
        try:
            yield
        finally:
            _up.remove(folder)
            file.truncate(0)


def _wait_for(file: TextIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"twin: waiting for another twin to go down ({file.name})", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)


def _clean_up_after(file: TextIO) -> None:
    file.seek(0)
    before = file.read().strip()
    if before:
        kill_marked(Path(before))
    file.truncate(0)
