"""Folders that hold data, and what to say when they do not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.paths import expanded


def expand_root(name: str, root: str | None) -> Path:
    """The folder of data set `name`, with the job's own variables and `~` filled in; HpcddpError where that cannot be."""
    if root is None:
        raise HpcddpError(f"data `{name}` needs a folder: set workload.data.root in the sweep, or data_roots in your settings")
    return Path(expanded(root, f"data `{name}`: root"))


def missing(what: str, root: Path, remedy: str) -> UsageError:
    """The error for data that are not where they should be, with what to do; compute nodes often cannot fetch them."""
    where = f"in {root}" if root.is_dir() else f"in {root} (no such folder on {os.uname().nodename})"
    return UsageError(f"{what} {where}: {remedy}")


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """The first of `names` that exists, folder by folder."""
    names = tuple(names)
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)
