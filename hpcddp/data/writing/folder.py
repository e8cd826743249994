"""A folder that data are written into: one process at a time, where there is room, and only files that are complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.lock import HeldError, HeldLock, exclusive_lock
from hpcddp.core.text import size

READ_BYTES = 2**24
"""Of a file at a time."""


def part_file(file: Path) -> Path:
    """Beside `file`, hidden, of a name that no other process on any machine writes to."""
    return file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}.part")


@contextlib.contextmanager
def written_aside(file: Path) -> Iterator[BinaryIO]:
    """A part file, open for writing and reading: synced and renamed to `file` after the block, removed where the block fails."""
    part = part_file(file)
    part.unlink(missing_ok=True)  # of an earlier process of the same number, or a link that somebody put there
    try:
        with part.open("x+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write_complete(file: Path, content: bytes | bytearray) -> None:
    """The same for content that is at hand: a reader finds the old file or the new one."""
    with written_aside(file) as out:
        out.write(content)


def sha256_of(file: BinaryIO) -> str:
    """Of all that follows in an open file."""
    digest = hashlib.sha256()
    while content := file.read(READ_BYTES):
        digest.update(content)
    return digest.hexdigest()


@contextlib.contextmanager
def without_parts(folder: Path) -> Iterator[None]:
    """Removes what killed processes left before the block, and after it what it left when it failed."""
    remove_parts(folder)
    try:
        yield
    finally:
        remove_parts(folder)


def bytes_of_parts(folder: Path) -> int:
    """What files that are being written take, or that killed processes left: room for what is still to be written."""
    found = 0
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):  # complete by now, or removed
            found += part.stat().st_size
    return found


def remove_parts(folder: Path) -> None:
    """Removes what killed processes left. Only for the holder of the folder's lock: nobody else writes there now."""
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            part.unlink()


LOCK_FOLDER = ".hpcddp-lock"
"""In the folder that it protects; hidden, so that no data set takes it for a part of itself."""

POLL_EVERY_S = 1.0
"""A few small requests to the file server each time."""


@contextlib.contextmanager
def root_lock(root: Path, remark: Callable[[str], None]) -> Iterator[HeldLock]:
    """Holds the lock of the folder `root` inside the block. While another process does, `remark` is given a sentence, once for
    each holder, and this one waits: a job that others wait for must not fail for being second. OSError where nothing can be
    written in `root`, which must exist.
    """
    (root / LOCK_FOLDER).mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        yield _wait(stack, root, remark)


def _wait(stack: contextlib.ExitStack, root: Path, remark: Callable[[str], None]) -> HeldLock:
    remarked = ""
    while True:
        try:
            return stack.enter_context(exclusive_lock(root / LOCK_FOLDER))
        except HeldError as error:
            holder = str(error).partition(",")[0]
            if holder != remarked:
                remark(f"{root}: {holder} writes there; waiting until it is done")
                remarked = holder
        time.sleep(POLL_EVERY_S)


FULL = (errno.ENOSPC, errno.EDQUOT)


def check_space(folder: Path, needed_bytes: int, what: str, advice: str) -> None:
    """HpcddpError says how much is missing in `folder`, where that can be known; a quota may leave less."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        missing_bytes = needed_bytes - free_bytes
        raise HpcddpError(
            f"{what} needs {size(needed_bytes)} more in {folder}, where {size(free_bytes)} are free: "
            f"{size(missing_bytes)} are missing; {advice}"
        )


def write_error(error: OSError, folder: Path, what: str, still_bytes: Callable[[], int]) -> HpcddpError:
    """The sentence for an error in writing `what`; of a full disk with how much is still to be written."""
    if isinstance(error, (FileExistsError, NotADirectoryError, PermissionError)):
        return UsageError(f"cannot write {what} into {folder}: {error.strerror}; choose another folder")
    room = f"; {size(still_bytes())} are still to be written there" if error.errno in FULL else ""
    return HpcddpError(f"cannot write {what} into {folder}: {error}{room}; what is finished stays, run again to go on")
