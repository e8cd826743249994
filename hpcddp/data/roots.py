"""Folders that hold data, what to say when they do not, and the manifests of prepared ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.jobspec import expanded
from hpcddp.core.schema import SchemaError, decode


def expand_root(name: str, root: str | None) -> Path:
    """The folder of data set `name`, with the job's own variables and `~` filled in; HpcddpError where that cannot be."""
    if root is None:
        raise HpcddpError(f"data `{name}` needs a folder. Set workload.data.root in the sweep, or data_roots in your settings.")
    return Path(expanded(root, f"data `{name}`: root"))


def missing(what: str, root: Path, remedy: str) -> UsageError:
    """The error for data that are not where they should be, with what to do; compute nodes often cannot fetch them."""
    where = f"in {root}" if root.is_dir() else f"in {root} (no such folder on {os.uname().nodename})"
    return UsageError(f"{what} {where}: {remedy}")


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """The first of `names` that exists, folder by folder."""
    names = tuple(names)
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


Found = TypeVar("Found")
SCHEMA = 1
"""Of all manifests so far."""


def decode_manifest(cls: type[Found], file: Path, advice: str) -> Found:
    """The file as a `cls`; UsageError where it is none, with `advice`, or where a newer version wrote it."""
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read as a manifest: {error}; {advice}") from error
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(f"{file} is of a newer version of hpcddp (schema {schema}; this one reads {SCHEMA}): use that version")
    try:
        return decode(cls, plain)
    except SchemaError as error:
        raise UsageError(f"{file} is not a manifest that this version reads: {error}; {advice}") from error
