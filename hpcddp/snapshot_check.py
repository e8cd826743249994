"""Whether a snapshot that is there holds what its name stands for, and nothing else: its files run as this user."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hpcddp.bootstrap import ownership_problems
from hpcddp.errors import HpcddpError


def verify(snapshot: Path, contents: Mapping[str, bytes], trusted: Collection[int]) -> None:
    """HpcddpError for a file with other bytes than in `contents`, for one more, for a link, and for folders and files that others
    own or may write. Files that are missing are none of its business, nor are hidden ones, which nothing imports.

    Reads every file, once a submission: what jobs check of it is in bootstrap.py.
    """
    entries = list(_entries(snapshot))
    _refuse(snapshot, ownership_problems([snapshot.parent, snapshot, *entries], trusted))
    others = (file for file in entries if not file.is_dir() and not _holds(file, contents.get(str(file.relative_to(snapshot)))))
    _refuse(snapshot, (f"{file} is not the code that this snapshot is named for, and would run as you" for file in others))


def _entries(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith("."):
            yield entry
            if stat.S_ISDIR(os.lstat(entry).st_mode):
                yield from _entries(entry)


def _holds(file: Path, content: bytes | None) -> bool:
    """Not asked of a pipe or a device, which would be waited for."""
    return content is not None and stat.S_ISREG(os.lstat(file).st_mode) and file.read_bytes() == content


def _refuse(snapshot: Path, problems: Iterator[str]) -> None:
    """The first of them, and the way out of all."""
    for text in problems:
        raise HpcddpError(f"{text}. Remove the snapshot, and submit again: rm -r {shlex.quote(str(snapshot))}")
