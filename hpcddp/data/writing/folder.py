"""A folder that data are written into: one process at a time, where there is room, only complete files; and how far it is."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.lock import HeldError, HeldLock, exclusive_lock
from hpcddp.core.text import duration, size, thousands

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
                remark(f"{root}: {holder} writes there; waiting until it has finished")
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
    return HpcddpError(f"cannot write {what} into {folder}: {error}{room}; finished files stay, run again to resume")


TERMINAL_EVERY_S = 0.2
LOG_EVERY_S = 30.0
"""In a job's log: a day of it is 2,880 lines."""

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is: first with what was there already."""


def counted(done: int, total: int, on_progress: OnProgress) -> Callable[[int], None]:
    """What to call with each further amount that is done."""

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        on_progress(done, total)

    advance(0)
    return advance


class ProgressLine:
    """Called with (done, total), as often as one likes; writes to `out` now and then, and once all is done."""

    def __init__(self, unit: str, out: TextIO, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._rate = Rate(unit)
        self._out = out
        self._clock_s = clock_s
        self._on_terminal = out.isatty()
        self._every_s = TERMINAL_EVERY_S if self._on_terminal else LOG_EVERY_S
        self._next_s = self._clock_s()
        self._ended = False

    def __call__(self, done: int, total: int) -> None:
        now_s = self._clock_s()
        if self._ended or (now_s < self._next_s and done < total):
            return
        self._next_s, self._ended = now_s + self._every_s, done >= total
        line = self._rate.line(done, total, now_s)
        if self._on_terminal:
            self._out.write(f"\r\x1b[K{line}" + ("\n" if done >= total else ""))
        else:
            self._out.write(f"{line}\n")
        self._out.flush()


class Rate:
    """Of work that is done in amounts; what was there at the first call counts in no rate."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._begin: tuple[int, float] | None = None

    def line(self, done: int, total: int, now_s: float) -> str:
        """`1,200,000 of 7,200,000 samples (16 %), 280,000/s, 21 s left`; without a rate until there is one."""
        if self._begin is None:
            self._begin = (done, now_s)
        at_begin, begin_s = self._begin
        text = f"{thousands(done)} of {thousands(total)} {self._unit} ({100 * done // max(1, total)} %)"
        if done <= at_begin or now_s <= begin_s:
            return text
        per_s = (done - at_begin) / (now_s - begin_s)
        left = f", {duration((total - done) / per_s)} left" if done < total else ""
        return f"{text}, {thousands(_two_digits(per_s), 1 if per_s < 10 else 0)}/s{left}"


def _two_digits(rate: float) -> int | float:
    """Rounded to what a rate of a few seconds is good for."""
    if rate < 10:
        return round(rate, 1)
    power: int = 10 ** (len(str(int(rate))) - 2)
    return round(rate / power) * power
