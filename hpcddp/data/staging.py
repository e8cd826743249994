"""The files of a data root that training reads, copied to another folder, and the copy checked.

What is written is read again and compared by CRC-32 with what was read from the source; of a file of a MiB or more from the disk,
not from memory.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TypeVar

from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import thousands
from hpcddp.data.pictures.image_folder import FOLDERS, SUFFIXES
from hpcddp.data.pictures.tar_shards import TAR_MANIFEST

READ: dict[str, tuple[str, ...]] = {
    "imagenet": tuple(FOLDERS.values()),
    "bigmnist": ("bigmnist.json", "*.u8"),
    "mnist": ("*-ubyte", "*-ubyte.gz", "MNIST"),
    "cifar10": ("cifar-10-binary.tar.gz", "cifar-10-batches-bin", "*_batch*.bin"),
    "digits": ("digits-*.bin",),
}
"""Names in the root that are read, by data set; all but hidden ones of the user's own."""

READ_OF_TARS = (TAR_MANIFEST, "*.tar", "*.tar.json")
"""Of ImageNet where it is packed."""

BLOCK_BYTES = 4096
"""What the least file takes."""


@dataclass
class RootFiles:
    """What a root has to copy; paths are relative to it."""

    folders: list[str] = field(default_factory=list)
    """Each after the one that it is in."""
    files: list[tuple[str, int]] = field(default_factory=list)
    """Path and bytes."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Path and absolute target: out of the root, or to nothing. They lead there from the copy, too, and are as wrong in it."""
    others: list[str] = field(default_factory=list)
    """What no program reads data from: pipes, sockets, devices. The copy has a pipe without a writer in its place."""

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def room_bytes(self) -> int:
        """What the copy takes of a disk, in blocks."""
        blocks = sum(-(-size // BLOCK_BYTES) for _, size in self.files)
        return BLOCK_BYTES * (blocks + len(self.folders) + len(self.links))

    @property
    def names(self) -> int:
        return len(self.files) + len(self.folders) + len(self.links) + len(self.others)


def find_files(name: str, root: Path) -> RootFiles:
    """What data set `name` reads of its root; nothing where it is not there. OSError for a folder that cannot be read."""
    found = RootFiles()
    if not root.is_dir():
        return found
    top = os.path.realpath(root)
    for entry in sorted(_entries_read(name, root), key=lambda each: each.name):
        target = os.path.realpath(entry.path)
        # A link in the root itself may lead anywhere: data sets are read through it.
        _add(found, entry.name, target, trees=(top, target), within=(top,))
    return found


def _entries_read(name: str, root: Path) -> Iterator[os.DirEntry[str]]:
    packed = name == "imagenet" and (root / TAR_MANIFEST).is_file()
    patterns = READ_OF_TARS if packed else READ.get(name, ("[!.]*",))
    with os.scandir(root) as entries:
        for entry in entries:
            if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns):
                yield entry


def _add(found: RootFiles, path: str, place: str, trees: Sequence[str], within: tuple[str, ...]) -> None:
    """`place`: where the file or folder itself is; `within`: the folders that were entered to come there."""
    try:
        facts = os.lstat(place)
    except OSError:
        found.links.append((path, place))
        return
    if stat.S_ISLNK(facts.st_mode):
        target = os.path.realpath(place)
        inside = any(target == tree or target.startswith(f"{tree}{os.sep}") for tree in trees)
        if not inside or not os.path.exists(target) or target in within:
            found.links.append((path, target))
        else:
            _add(found, path, target, trees, within)
    elif stat.S_ISDIR(facts.st_mode):
        found.folders.append(path)
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            _add(found, os.path.join(path, name), os.path.join(place, name), trees, (*within, place))
    elif stat.S_ISREG(facts.st_mode):
        found.files.append((path, facts.st_size))
    else:
        found.others.append(path)


T = TypeVar("T")

THREADS = 8
"""Files at a time: a parallel file system gives one reader a fraction of its rate."""

CHUNK_BYTES = 2**23

FLUSHED_FROM_BYTES = 2**20
"""Smaller files are not flushed one by one: ImageNet has 1.3 million."""

PART_FILES = 2000
"""A thread's at a time."""

FilesPart = Sequence[tuple[str, int]]
"""Paths below the root, and bytes."""

Advance = Callable[[int], None]
"""Called with bytes that are new, by any thread."""


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What it took."""

    files: int
    copied_bytes: int
    copy_s: float
    check_s: float
    unreadable: int
    """Files of the source that could not be read: the copy has an empty one, which no more can be used."""


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.chunk = memoryview(bytearray(CHUNK_BYTES))


def copy_files(root: Path, to: Path, found: RootFiles, progress: Advance = lambda _: None, threads: int = THREADS) -> Copied:
    """Into the folder `to`, which is empty; HpcddpError where it cannot be written, or differs when it is read again."""
    copier, parts = _Copier(root, to, progress), _parts(found.files)
    try:
        begun_s = time.monotonic()
        _make_places(to, found)
        checksums = _in_threads(copier.copy, parts, threads)
        copied_s = time.monotonic()
        _in_threads(copier.check, list(zip(parts, checksums, strict=True)), threads)
    except OSError as error:
        raise HpcddpError(f"cannot copy {root} to {to}: {error.strerror}") from error
    return Copied(
        files=len(found.files),
        copied_bytes=found.total_bytes,
        copy_s=copied_s - begun_s,
        check_s=time.monotonic() - copied_s,
        unreadable=sum(value is None for part in checksums for value in part),
    )


def _make_places(to: Path, found: RootFiles) -> None:
    for path in found.folders:
        (to / path).mkdir()
    for path, target in found.links:
        os.symlink(target, to / path)
    for path in found.others:
        os.mkfifo(to / path)


def _parts(files: FilesPart) -> list[FilesPart]:
    """Many small files at a time, or one that is large; in their order."""
    parts: list[list[tuple[str, int]]] = []
    room = 0
    for path, size in files:
        if not parts or len(parts[-1]) == PART_FILES or size > room:
            parts.append([])
            room = CHUNK_BYTES * THREADS
        parts[-1].append((path, size))
        room -= size
    return list(parts)


def _in_threads(function: Callable[[T], list[int | None]], parts: Sequence[T], threads: int) -> list[list[int | None]]:
    """The results in the order of the parts; after an error no part begins."""
    with ThreadPoolExecutor(threads, thread_name_prefix="hpcddp-copy") as pool:
        futures = [pool.submit(function, part) for part in parts]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Copier:
    def __init__(self, root: Path, to: Path, progress: Advance) -> None:
        self._root, self._to, self._progress = root, to, progress
        self._buffers = _Buffers()

    def copy(self, part: FilesPart) -> list[int | None]:
        """The checksum of each file; None of a picture that cannot be read."""
        return [self._copy(path, size) for path, size in part]

    def check(self, part: tuple[FilesPart, Sequence[int | None]]) -> list[int | None]:
        """HpcddpError for a file that is not what was read of the source."""
        for (path, size), checksum in zip(*part, strict=True):
            if checksum is not None and self._checksum(self._to / path, size) != checksum:
                raise HpcddpError(f"{self._to / path} differs from what was read of {self._root / path}: its disk is damaged")
        return list(part[1])

    def _copy(self, path: str, size: int) -> int | None:
        source, target = self._root / path, self._to / path
        try:
            opened = open(source, "rb", buffering=0)  # noqa: SIM115 - closed below; what is open here is another's error
        except OSError as error:
            if not path.lower().endswith(SUFFIXES):
                raise HpcddpError(f"cannot read {source}: {error.strerror}") from error
            target.touch()
            return None
        with opened, open(target, "xb", buffering=0) as written:
            checksum, copied = self._transfer(opened, written, source)
            if size >= FLUSHED_FROM_BYTES:
                os.fdatasync(written.fileno())
        if copied != size:
            raise HpcddpError(
                f"{source} had {thousands(size)} bytes and now has {thousands(copied)}: it was changed while it was copied"
            )
        return checksum

    def _transfer(self, source: FileIO, target: FileIO, path: Path) -> tuple[int, int]:
        """Checksum and bytes of what was read and written."""
        checksum = copied = 0
        while count := _read_into(source, self._buffers.chunk, path):
            chunk = self._buffers.chunk[:count]
            checksum, copied = zlib.crc32(chunk, checksum), copied + count
            while chunk:
                chunk = chunk[target.write(chunk) :]
            self._progress(count)
        return checksum, copied

    def _checksum(self, file: Path, size: int) -> int:
        checksum = 0
        with open(file, "rb", buffering=0) as source:
            if size >= FLUSHED_FROM_BYTES:
                os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while count := _read_into(source, self._buffers.chunk, file):
                checksum = zlib.crc32(self._buffers.chunk[:count], checksum)
        return checksum


def _read_into(source: FileIO, into: memoryview, path: Path) -> int:
    try:
        return source.readinto(into) or 0
    except OSError as error:
        raise HpcddpError(f"cannot read {path}: {error.strerror}") from error
