"""The node's own disk: where a job may write on it, how much room there is, and folders that a killed job left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hpcddp.core.errors import HpcddpError
from hpcddp.core.paths import expanded
from hpcddp.worker.survey.disk import IN_MEMORY, OF_A_NETWORK, filesystem
from hpcddp.worker.telemetry.node import node_memory

REMOVER = 'trap "" INT TERM HUP; read -r word; [ "$word" = keep ] || rm -rf -- "$0" "$0.json" "$0.lock"'
"""A shell that removes the folder when its standard input ends, as it does when the rank is killed, unless told to keep it."""

IN_MEMORY_SHARE = 0.5
"""Of the memory that is free: the rest is for the training."""


class Room(NamedTuple):
    """What a folder's file system has left."""

    filesystem: str
    free_bytes: int
    free_names: int | None
    """Files; None where it has no limit."""


def disk_folder(given: str | None, env: Mapping[str, str] = os.environ) -> Path:
    """`given`: the profile's; None: SLURM_TMPDIR, TMPDIR or /tmp, the first that can be written to."""
    if given is not None:
        folder = Path(expanded(given, "the profile's local_disk_path"))
        if not os.access(folder, os.W_OK):
            raise HpcddpError(f"{folder}, the profile's local_disk_path, cannot be written to on {os.uname().nodename}")
        return folder
    places = [*(env[name] for name in ("SLURM_TMPDIR", "TMPDIR") if env.get(name)), "/tmp"]
    return Path(next((place for place in places if os.path.isdir(place) and os.access(place, os.W_OK)), "/tmp"))


def room_in(folder: Path, mounts: Path = Path("/proc/mounts")) -> Room:
    """HpcddpError where other nodes have the same folder."""
    kind = filesystem(folder.resolve(), mounts.read_text(encoding="utf-8", errors="replace"))
    if kind.startswith(OF_A_NETWORK):
        raise HpcddpError(
            f"{folder} is {kind}, no disk of the node's own: name one as local_disk_path of the profile's node type, "
            f"or set workload.data.stage to none"
        )
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if kind in IN_MEMORY:
        free = min(free, int(IN_MEMORY_SHARE * node_memory().available))
    return Room(kind, free, space.f_favail if space.f_files else None)


@contextlib.contextmanager
def removed_at_end(folder: Path, *, keep: bool = False) -> Iterator[None]:
    """Makes the folder; when the block ends it goes, and also when this process is killed, unless all are at once.

    Then the next job's on that node removes it: the lock beside the folder is held for as long as a process needs it. With `keep`
    the job has more runs: a folder that `is_complete` is there from the start, and stays.
    """
    with _locked(folder) as lock:
        if not keep or not is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        command = ["/bin/sh", "-c", REMOVER, str(folder)]
        remover = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=[lock])
        assert remover.stdin is not None
        os.register_at_fork(after_in_child=remover.stdin.close)  # a loader's process would keep the pipe open
        try:
            yield
        finally:
            remover.communicate(b"keep\n" if keep and is_complete(folder) else None)


def record_of(folder: Path) -> Path:
    """Beside it, once it is complete; what it says is the caller's matter."""
    return Path(f"{folder}.json")


def is_complete(folder: Path) -> bool:
    """Whether it is there with its record, both this user's: others may write beside them."""
    try:
        there, record = folder.lstat(), record_of(folder).lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(there.st_mode) and stat.S_ISREG(record.st_mode) and {there.st_uid, record.st_uid} == {os.getuid()}


def remove_left(parent: Path, names: str, but: Path | None = None) -> None:
    """Folders of such names (a pattern), this user's, whose processes are gone; `but` stays."""
    for lock in parent.glob(f"{names}.lock"):
        if lock == Path(f"{but}.lock"):
            continue
        with contextlib.suppress(OSError):
            handle = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if os.fstat(handle).st_uid == os.getuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    record_of(lock.with_suffix("")).unlink(missing_ok=True)
                    lock.unlink()
            finally:
                os.close(handle)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """The lock beside the folder, made anew where another process has just removed it."""
    file = f"{folder}.lock"
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(file).st_ino == os.fstat(handle).st_ino:
                break
        os.close(handle)
    try:
        yield handle
    finally:
        os.close(handle)
