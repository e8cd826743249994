"""Files that appear under their name only when they are complete and on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

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
