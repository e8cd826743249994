"""Data on the node's own disk: one rank of each node copies them before anything is read, and removes the copy at the end.

The others wait in the store, not in a collective: how long it takes is the file system's matter. Of that disk: where a job may
write, how much room there is, and folders that a killed job left.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import stat
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.jobspec import JobSpec, data_root_as_given, expanded
from hpcddp.core.launch_record import NodeCopy, ProfileFacts, Staging, staging_words
from hpcddp.core.records import write_json
from hpcddp.core.schema import decode_record, encode
from hpcddp.core.text import size, thousands
from hpcddp.data.roots import expand_root
from hpcddp.data.staging import RootFiles, copy_files, find_files
from hpcddp.worker.disk import IN_MEMORY, OF_A_NETWORK, filesystem, writable_folder
from hpcddp.worker.ranks import Rank
from hpcddp.worker.rendezvous import ProcessGroup
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
    """`given`: the profile's; None: that of the job's temporary files."""
    if given is None:
        return writable_folder(env)
    folder = Path(expanded(given, "the profile's local_disk_path"))
    if not os.access(folder, os.W_OK):
        raise HpcddpError(f"{folder}, the profile's local_disk_path, cannot be written to on {os.uname().nodename}")
    return folder


def room_in(folder: Path, mounts: Path = Path("/proc/mounts")) -> Room:
    """HpcddpError where other nodes have the same folder."""
    kind = filesystem(folder.resolve(), mounts.read_text(encoding="utf-8", errors="replace"))
    if kind.startswith(OF_A_NETWORK):
        raise HpcddpError(
            f"{folder} is {kind}, not a disk of the node. Set local_disk_path of the profile's node type to one, "
            f"or workload.data.stage to none."
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
        failed = True  # then the end of the process removes it: its error is recorded before others miss the folder
        try:
            yield
            failed = False
        finally:
            stays = keep and is_complete(folder)
            if stays or not failed:
                remover.communicate(b"keep\n" if stays else None)


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


WAIT = timedelta(days=7)
"""For the slowest node: what ends a job that copies for too long is its time limit, and what ends one with a rank that failed is
that rank."""

SAY_EVERY_S = 60.0

STAGED = "hpcddp/all staged"

KEEP_VARIABLE = "HPCDDP_KEEP_COPIES"
"""Set to 1 by scripts of several runs, which remove the copies themselves."""


@dataclass(frozen=True, kw_only=True)
class StagedData:
    """Where this rank reads, and what the copies took."""

    spec: JobSpec
    """With the copy's folder for the data's."""
    record: Staging | None
    """On rank 0, where data were copied."""


@contextlib.contextmanager
def staged_data(spec: JobSpec, group: ProcessGroup) -> Iterator[StagedData]:
    """All ranks call it, and read data inside of the block only. Errors inside name the data's own folder."""
    data = spec.point.workload.data
    if data.stage == "none":
        yield StagedData(spec=spec, record=None)
        return
    root = expand_root(data.name, data_root_as_given(spec))
    begun_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        if group.rank.local_rank == 0:
            folder, own = _own_copy(spec, group.rank, root, stack)
            group.store.set(f"hpcddp/copy on {group.rank.host}", str(folder))
        else:
            own = None
        record = _wait_for_all(group, own, begun_s)
        folder = Path(group.store.get(f"hpcddp/copy on {group.rank.host}").decode())
        stack.enter_context(_naming_root(folder, root))
        workload = replace(spec.point.workload, data=replace(data, root=str(folder)))
        point = replace(spec.point, workload=workload)
        yield StagedData(spec=replace(spec, point=point), record=record)


def prefix() -> str:
    """How names of copies begin; other users have theirs."""
    return f"hpcddp-stage-{os.getuid()}-"


@contextlib.contextmanager
def _naming_root(folder: Path, root: Path) -> Iterator[None]:
    try:
        yield
    except HpcddpError as error:
        if str(folder) not in str(error):
            raise
        raise error.reworded(str(error).replace(str(folder), str(root))) from error


def _wait_for_all(group: ProcessGroup, own: NodeCopy | None, begun_s: float) -> Staging | None:
    """Returns when every node has its copy; the record on rank 0. `own`: what this rank has copied."""
    if own and group.store.add("hpcddp/staged", 1) == group.rank.nodes:
        group.store.set(STAGED, "")
    group.store.wait([STAGED], WAIT)
    waited_s = time.monotonic() - begun_s
    nodes = [decode_record(NodeCopy, plain) for plain in group.gather("staging", encode(own)) if plain]
    if not nodes:
        return None
    found = Staging(wait_s=waited_s, nodes=tuple(nodes))
    print(f"hpcddp: {staging_words(found)}", flush=True)
    return found


def _own_copy(spec: JobSpec, rank: Rank, root: Path, stack: contextlib.ExitStack) -> tuple[Path, NodeCopy]:
    """The folder, which goes when the stack is left, and what it took; HpcddpError where the disk has not enough room."""
    profile = decode_record(ProfileFacts, spec.profile, ("profile",))
    disk = disk_folder(profile.node_type(spec.point.layout.node_type).local_disk_path).resolve()
    name, keep = spec.point.workload.data.name, os.environ.get(KEEP_VARIABLE) == "1"
    folder = disk / f"{prefix()}{slurm_id(rank.job)}-{rank.host}-{zlib.crc32(f'{name} {root}'.encode()):08x}"
    try:
        remove_left(disk, f"{prefix()}*-{glob.escape(rank.host)}-*", but=folder if keep else None)
        if keep and is_complete(folder):
            stack.enter_context(removed_at_end(folder, keep=True))
            return folder, replace(decode_record(NodeCopy, json.loads(record_of(folder).read_text())), reused=True)
        found, room = find_files(name, root), room_in(disk)
        _check_room(found, room, rank, disk)
        if found.names:
            stack.enter_context(removed_at_end(folder, keep=keep))
        else:
            folder = root  # where opening it says what is missing
    except OSError as error:
        raise HpcddpError(f"cannot copy {root} to {disk} on {rank.host}: {error}") from error
    copied = copy_files(root, folder, found, _Saying(rank, found.total_bytes))
    own = NodeCopy(host=rank.host, folder=str(folder), filesystem=room.filesystem, **vars(copied))
    if keep and found.names:
        write_json(record_of(folder), encode(own))
    return folder, own


class _Saying:
    """Rank 0's progress, a line a minute: other nodes' disks take about as long."""

    def __init__(self, rank: Rank, total_bytes: int) -> None:
        self._rank, self._total_bytes = rank, total_bytes
        self._lock = threading.Lock()
        self._done_bytes, self._due_s = 0, time.monotonic() + SAY_EVERY_S

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done_bytes += count
            if self._rank.rank == 0 and time.monotonic() >= self._due_s:
                self._due_s += SAY_EVERY_S
                print(f"hpcddp: {size(self._done_bytes)} of {size(self._total_bytes)} copied to {self._rank.host}", flush=True)


def _check_room(found: RootFiles, room: Room, rank: Rank, disk: Path) -> None:
    there = f"{disk} on {rank.host}{', which is memory,' if room.filesystem in IN_MEMORY else ''} has room for"
    remedy = "Set workload.data.stage to none, or local_disk_path of the profile's node type to a larger disk."
    if found.room_bytes > room.free_bytes:
        raise HpcddpError(f"the data need {size(found.room_bytes)}, but {there} {size(room.free_bytes)}. {remedy}")
    if room.free_names is not None and found.names > room.free_names:
        raise HpcddpError(f"the data have {thousands(found.names)} files, but {there} {thousands(room.free_names)}. {remedy}")
