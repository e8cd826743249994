"""The files of a data root that training reads."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcddp.data.pictures.image_folder import FOLDERS
from hpcddp.data.pictures.tar_shards import MANIFEST as TAR_MANIFEST

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
    for entry in sorted(_read(name, root), key=lambda each: each.name):
        target = os.path.realpath(entry.path)
        # A link in the root itself may lead anywhere: data sets are read through it.
        _add(found, entry.name, target, trees=(top, target), within=(top,))
    return found


def _read(name: str, root: Path) -> Iterator[os.DirEntry[str]]:
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
