"""Pictures in a folder per class, ROOT/train/CLASS/*.JPEG and ROOT/val/CLASS/*.JPEG: their names, labels and bytes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import torch

from hpcddp.core.catalog import IMAGENET
from hpcddp.core.errors import UsageError
from hpcddp.core.text import thousands
from hpcddp.data.roots import missing
from hpcddp.data.source import Split

FOLDERS = {"train": "train", "eval": "val"}
SUFFIXES = (".jpeg", ".jpg", ".png")
MOST_BYTES = 2**28
"""Of one picture's file; ImageNet's largest has 15 MB. A sparse file may claim any size."""

_READ_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe without a writer is opened at once, and a link is not followed."""


class DamagedPictureError(Exception):
    """This picture cannot be used; the message says why."""


class PackedNames:
    """Kept as one string of bytes: as Python objects a million would take 130 MB, and forked workers would copy them page by page
    as reference counts change.
    """

    def __init__(self, names: Sequence[bytes]) -> None:
        self._joined = b"".join(names)
        self._ends = torch.tensor([len(name) for name in names]).cumsum(0)

    def __getitem__(self, index: int) -> str:
        start = int(self._ends[index - 1]) if index else 0
        return os.fsdecode(self._joined[start : int(self._ends[index])])


class ImageFolder:
    """Paths and labels of a split."""

    def __init__(self, root: Path, split: Split) -> None:
        self._folder = root / FOLDERS[split]
        self._trees = (root, self._folder)
        self._classes = class_names(root, "train")
        names: list[bytes] = []
        labels: list[int] = []
        for name in class_names(root, FOLDERS[split]):
            files = _pictures(self._folder / name)
            names += files
            labels += [self._label(name)] * len(files)
        if not names:
            raise missing(f"no pictures ({', '.join(SUFFIXES)})", self._folder, "put ILSVRC2012's there, a folder per class")
        self._names = PackedNames(names)
        self.labels = torch.tensor(labels)

    def path(self, index: int) -> Path:
        return self._folder / self.name(index)

    def name(self, index: int) -> str:
        """CLASS/FILE"""
        return f"{self._classes[int(self.labels[index])]}/{self._names[index]}"

    def content(self, index: int) -> bytes:
        """The picture's file; DamagedPictureError where it is none, or lies outside the folder."""
        path = self.path(index)
        try:
            return read_picture(path, self._trees)
        except OSError as error:
            raise DamagedPictureError(error.strerror or str(error)) from error

    def _label(self, name: str) -> int:
        if name not in self._classes:
            raise UsageError(f"{self._folder} has a class `{name}` that {self._folder.parent / 'train'} lacks")
        return self._classes.index(name)


def read_picture(path: Path, trees: Sequence[Path]) -> bytes:
    """All of the file; OSError or DamagedPictureError for what is none, is too large, or links out of all `trees`."""
    try:
        descriptor = os.open(path, _READ_ONLY)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        target = _inside(path, trees)
        if target is None:
            raise DamagedPictureError("it is a symbolic link out of the data folder") from None
        descriptor = os.open(target, _READ_ONLY)
    with open(descriptor, "rb", buffering=0) as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise DamagedPictureError("it is not a regular file")
        if facts.st_size > MOST_BYTES:
            raise DamagedPictureError(f"{thousands(facts.st_size)} bytes are not an image")
        return file.read(facts.st_size)


def class_names(root: Path, folder: str) -> list[str]:
    """Sorted: a class's number is its place among the training folders, as everywhere."""
    try:
        entries = list(os.scandir(root / folder))
        folders = [entry for entry in entries if entry.is_dir()]
        astray = next((entry.name for entry in folders if entry.is_symlink() and not _inside(entry, (root, root / folder))), None)
    except PermissionError as error:
        raise UsageError(f"cannot read {root / folder}: {error.strerror}") from error
    except OSError as error:
        raise missing(
            f"no folder {folder}/ of ImageNet", root, "put ILSVRC2012's images there as train/CLASS/*.JPEG and val/CLASS/*.JPEG"
        ) from error
    if astray is not None:
        raise UsageError(f"{root / folder / astray} is a symbolic link out of {root}. Copy the folder, or use its own root.")
    if entries and not folders:
        raise UsageError(
            f"{root / folder} contains images but no folders. Sort them into a folder per class, named as in train/."
        )
    if len(folders) > IMAGENET.classes:
        raise UsageError(f"{root / folder} holds {len(folders)} folders; ImageNet has {IMAGENET.classes} classes")
    return sorted(entry.name for entry in folders)


def _pictures(folder: Path) -> list[bytes]:
    try:
        return sorted(os.fsencode(entry.name) for entry in os.scandir(folder) if entry.name.lower().endswith(SUFFIXES))
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from error


def _inside(link: os.PathLike[str], trees: Sequence[Path]) -> Path | None:
    """Where the link leads if that is below one of `trees`, which may be links themselves; OSError where it leads nowhere."""
    target = Path(os.path.realpath(link, strict=True))
    return target if any(target.is_relative_to(tree.resolve()) for tree in trees) else None
