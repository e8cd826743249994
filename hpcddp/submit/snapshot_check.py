"""Whether a snapshot holds the files its name stands for and no others: whatever lies there runs as this user."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hpcddp.core.bootstrap import ownership_problem
from hpcddp.core.errors import HpcddpError


def verify(snapshot: Path, contents: Mapping[str, bytes], trusted: Collection[int]) -> None:
    """HpcddpError for a file whose bytes are not those of `contents`, for a file that `contents` lacks, for a link, and for
    folders and files that others own or may write. Missing files are not looked for, nor are hidden ones, which nothing imports.

    Reads every file once a submission; what jobs check is in bootstrap.py.
    """
    for file in (snapshot, *_entries(snapshot)):
        name = file.relative_to(snapshot).as_posix()
        problem = ownership_problem(file, trusted)
        if problem or not (file.is_dir() or _holds(file, contents.get(name))):
            what = f"{problem[0]} would run as you" if problem else "is not the code that this snapshot is named for"
            raise HpcddpError(f"{file} {what}. Remove the snapshot, and submit again: rm -r {shlex.quote(str(snapshot))}")


def _entries(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith("."):
            yield entry
            if stat.S_ISDIR(os.lstat(entry).st_mode):
                yield from _entries(entry)


def _holds(file: Path, content: bytes | None) -> bool:
    """Whether the file has that content; a pipe or a device is not read, which could wait for ever."""
    return content is not None and stat.S_ISREG(os.lstat(file).st_mode) and file.read_bytes() == content
