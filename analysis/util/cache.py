"""Caches what was computed from records, as plain JSON: a file per run, in `.analysis/` beside the study's points.

Each file holds a fingerprint of its inputs: names, sizes and times of the records' files, the text of each end.json, and a hash
of the code that reads them. An entry whose fingerprint differs, or that is damaged, counts as missing. What cannot be written is
not cached. Values become JSON and return by their types: frozen records, mappings, sequences, tables and arrays in each other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import stat
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np
import pandas as pd

import hpcddp
from hpcddp.analysis.util.output import analysis_cache_folder
from hpcddp.analysis.util.regular_files import read_regular
from hpcddp.core.records import write_aside
from hpcddp.core.run_root import Study

pd.set_option("mode.string_storage", "python")
"""Else pandas keeps texts as pyarrow does where that is installed: it has none for bytes of file names that are no UTF-8, and a
report is the same with it and without. Whatever reads a study imports this module."""


def to_plain(value: Any) -> Any:  # noqa: PLR0911  a case per type
    """What json writes as it is; numbers keep every bit. TypeError for what from_plain does not read back."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, Mapping):
        return [[to_plain(key), to_plain(each)] for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        values = [None if isinstance(each, float) and math.isnan(each) else each for each in value.ravel().tolist()]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": values}
    if isinstance(value, pd.DataFrame):
        return [[str(name), to_plain(column.to_numpy())] for name, column in value.items()]
    raise TypeError(f"{type(value).__name__} cannot be cached")


def from_plain(shape: Any, plain: Any) -> Any:  # noqa: PLR0911  a case per type
    """The value of that type which to_plain made `plain` of; ValueError, TypeError or KeyError where it cannot have been."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if shape is Any:
        return plain
    if origin in (Union, types.UnionType):
        return _of_union(inner, plain)
    if origin is Literal:
        return _checked(plain in inner, plain)
    if isinstance(shape, type) and dataclasses.is_dataclass(shape):
        hints = _hints(shape)
        _checked(isinstance(plain, dict) and set(plain) == set(hints), plain)
        return shape(**{name: from_plain(hint, plain[name]) for name, hint in hints.items()})
    if shape is pd.DataFrame:
        return pd.DataFrame({name: _array(column) for name, column in plain})
    if origin is np.ndarray:
        return _array(plain)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = plain.items() if isinstance(plain, dict) else plain
        return {from_plain(inner[0], key): from_plain(inner[1], each) for key, each in pairs}
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(from_plain(each, value) for each, value in zip(inner, plain, strict=True))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        items = [from_plain(inner[0], each) for each in _checked(isinstance(plain, list), plain)]
        return tuple(items) if origin is tuple else items
    allowed = (int, float) if shape is float else shape  # a whole number of nanoseconds may stand for a float
    return _checked(isinstance(plain, allowed) and (shape is bool or not isinstance(plain, bool)), plain)


def _of_union(shapes: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in shapes:
        return None
    for shape in shapes:
        try:
            return from_plain(shape, plain)
        except (ValueError, TypeError, KeyError):
            continue
    raise ValueError(f"{plain!r:.60} is none of {shapes}")


def _array(plain: Any) -> Any:
    """Of numbers, truth values or texts: never of objects that would have to be made."""
    dtype, values = np.dtype(plain["dtype"]), plain["values"]
    _checked(dtype.kind in "biufO", plain)
    _checked(all(value is None or isinstance(value, (bool, int, float, str)) for value in values), plain)
    return np.array(values, dtype=dtype).reshape(plain["shape"])


def _checked(holds: bool, plain: Any) -> Any:
    if not holds:
        raise ValueError(f"{plain!r:.60} is not what was cached")
    return plain


_hints = functools.cache(typing.get_type_hints)


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
    """A study's cached values by name, in `folder` or where output.analysis_cache_folder says."""

    def __init__(self, study: Study, folder: Path | None = None) -> None:
        self._study, self._given = study, folder

    @functools.cached_property
    def _folder(self) -> Path:
        return self._given or analysis_cache_folder(self._study)

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
