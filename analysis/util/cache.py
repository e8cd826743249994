"""Caches what was computed from records, as plain JSON: a file per run, in `.analysis/` beside the study's points.

Each file holds a fingerprint of its inputs: names, sizes and times of the records' files, the text of each end.json, and a hash
of the code that reads them. An entry whose fingerprint differs, or that is damaged, counts as missing. What cannot be written is
not cached.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hpcddp
from hpcddp.analysis.util.output_paths import cache_folder
from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.records import write_aside
from hpcddp.core.run_root import Study

TOOLS = ("numpy", "pandas", "matplotlib")


@dataclass(frozen=True)
class Fingerprint:
    """The inputs of a cached value."""

    key: str
    """A hash of all of them."""
    csv_files: int
    csv_bytes: int


def fingerprint(folder: Path, *more: str, leave: Collection[str] = ()) -> Fingerprint | None:
    """Of all files in the folder, without its sub-folders `leave`, and of `more`; None if one is a link."""
    digest = hashlib.sha256(json.dumps([code_key(), *more]).encode())
    count = size = 0
    for path, found in _files(folder, leave):
        if stat.S_ISLNK(found.st_mode):
            return None
        digest.update(os.fsencode(f"{path!r} {found.st_mode} {found.st_size} {found.st_mtime_ns}\n"))
        if path.endswith("end.json"):
            with contextlib.suppress(OSError, ValueError):
                digest.update(read_regular(folder / path))
        if path.endswith(".csv"):
            count, size = count + 1, size + found.st_size
    return Fingerprint(digest.hexdigest(), count, size)


def _files(folder: Path, leave: Collection[str]) -> list[tuple[str, os.stat_result]]:
    """Relative paths, sorted, each with its lstat."""
    found, folders = [], [""]
    while folders:
        inside = folders.pop()
        with contextlib.suppress(OSError), os.scandir(folder / inside) as entries:
            for entry in entries:
                path = os.path.join(inside, entry.name)
                if not entry.is_dir(follow_symlinks=False):
                    found.append((path, entry.stat(follow_symlinks=False)))
                elif path not in leave:
                    folders.append(path)
    return sorted(found, key=lambda each: each[0])


@functools.cache
def code_key() -> str:
    """Changes whenever the reading code changes."""
    package = Path(hpcddp.__file__).parent
    folders = (package / "core", package / "analysis")
    found = [package / "__init__.py", *(f for folder in folders for f in folder.rglob("*.*") if f.parent.name != "__pycache__")]
    digest = hashlib.sha256(json.dumps([version(name) for name in TOOLS]).encode())
    for file in sorted(filter(Path.is_file, found)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class Cache:
    """A study's cached values by name, in `folder` or where output_paths.cache_folder says."""

    def __init__(self, study: Study, folder: Path | None = None) -> None:
        self._study, self._given = study, folder

    @functools.cached_property
    def _folder(self) -> Path:
        return self._given or cache_folder(self._study)

    def get(self, name: str, inputs: Fingerprint | None) -> Any:
        """The value as it was put; None if there is none of this name and of the same inputs."""
        if inputs is None:
            return None
        try:
            plain = json.loads(read_regular(self._file(name)))
            return plain["value"] if plain["key"] == inputs.key else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, name: str, inputs: Fingerprint | None, plain: Any) -> None:
        """Replaces the value of that name; a reader finds the old file or the complete new one."""
        if inputs is None:
            return
        with contextlib.suppress(OSError, ValueError, TypeError):
            text = json.dumps({"key": inputs.key, "value": plain}, separators=(",", ":"))
            write_aside(self._file(name), text.encode(), sync=False)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"
