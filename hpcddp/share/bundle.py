"""A study as one archive: records and scripts, in equal bytes for an equal study.

NAME/bundle.json     what this is, and what was left out
NAME/...             the study's files under their own paths (unbundle.py)
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hpcddp import __version__
from hpcddp.core.errors import UsageError
from hpcddp.core.records import naming
from hpcddp.core.run_root import Study
from hpcddp.core.text import count
from hpcddp.share.pseudonyms import Pseudonyms, named_in
from hpcddp.share.unbundle import is_folder_of_runs, kind_of, why_left_out

SCHEMA = 1
"""Of bundle.json: 1 (0.1.0)."""

ABOUT = "bundle.json"

FREE_TEXT = ("logs", "profiles")
"""Kinds of files that may say anything: no name in them can be replaced for sure."""

LINKS = "links: to other places"

STRANGE = why_left_out("")
"""Files that nothing of a study accounts for; the first NAMED are named."""

NAMED = 3


@dataclass(frozen=True)
class PackedBundle:
    """What went into a bundle."""

    files: Mapping[str, int]
    """Kind -> how many."""
    left_out: Mapping[str, int]
    """Reason -> how many files."""
    strange: tuple[str, ...]
    """The first few of those that hpcddp did not write."""
    remaining: Mapping[str, tuple[str, ...]]
    """File -> names that are still in it: they are part of what was run, or nobody knows by what to replace them."""
    size_bytes: int


@dataclass(frozen=True)
class _Contents:
    files: list[tuple[str, str]]
    """(path below the study, kind), sorted."""
    folders: list[str]
    left_out: Counter[str]
    strange: list[str]


def write_bundle(study: Study, out: Path, pseudonymise: bool = False, force: bool = False, yes: bool = False) -> PackedBundle:
    """Writes the bundle beside `out` and renames it; UsageError where `out` is there and `force` is not given, or where names
    are still in it and `yes` is not given.
    """
    if out.exists() and not force:
        raise UsageError(f"{out} already exists. Give -o another name, or replace it with --force.")
    contents = _contents(study, FREE_TEXT if pseudonymise else ())
    paths = [path for path, _ in contents.files]
    texts = ((path, b"" if path.endswith(".csv") else (study.folder / path).read_bytes()) for path in paths)
    names = named_in(texts) if pseudonymise else None
    remaining: dict[str, tuple[str, ...]] = {}
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with naming(out), aside.open("wb") as raw:
            _write(raw, study, contents, names, remaining)
        if remaining and not yes:
            said = "\n".join(remaining_words(remaining))
            raise UsageError(f"{said}\nhpcddp cannot replace these names, and wrote no bundle. If they may be shared, add --yes.")
        aside.replace(out)
    finally:
        aside.unlink(missing_ok=True)
    kinds = Counter(kind for _, kind in contents.files)
    return PackedBundle(kinds, contents.left_out, tuple(sorted(contents.strange)[:NAMED]), remaining, out.stat().st_size)


def remaining_words(remaining: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A sentence for all files that still have the same names, by the first file."""
    found: dict[tuple[str, ...], list[str]] = {}
    for file, names in sorted(remaining.items()):
        found.setdefault(names, []).append(file)
    more = {names: f" and {count(len(files) - 1, 'other file')} have" if files[1:] else " has" for names, files in found.items()}
    return [f"{files[0]}{more[names]} {', '.join(names)}" for names, files in found.items()]


def _contents(study: Study, without: tuple[str, ...]) -> _Contents:
    found = _Contents([], [], Counter(), [])
    for folder, folders, files in os.walk(study.folder):
        below = Path(folder).relative_to(study.folder).as_posix()
        prefix = "" if below == "." else f"{below}/"
        if is_folder_of_runs(below):
            found.folders.append(below)
        found.left_out.update(LINKS for name in folders if os.path.islink(os.path.join(folder, name)))
        for name in files:
            path = prefix + name
            kind = kind_of(path)
            if path == ABOUT:
                found.left_out["bundle.json of an earlier bundle"] += 1
            elif os.path.islink(os.path.join(folder, name)):
                found.left_out[LINKS] += 1
            elif kind is None:
                found.left_out[why_left_out(path)] += 1
                found.strange.extend([path] if why_left_out(path) == STRANGE else [])
            elif kind in without:
                found.left_out[f"{kind}: they may contain any name"] += 1
            else:
                found.files.append((path, kind))
    found.files.sort()
    found.folders.sort()
    return found


def _write(
    raw: IO[bytes], study: Study, contents: _Contents, names: Pseudonyms | None, remaining: dict[str, tuple[str, ...]]
) -> None:
    top = study.folder.resolve().name
    about = {"schema": SCHEMA, "hpcddp": __version__, "pseudonymised": names is not None, "left_out": dict(contents.left_out)}
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add(archive, f"{top}/{ABOUT}", (json.dumps(about, indent=1, sort_keys=True) + "\n").encode())
        for folder in contents.folders:
            _add(archive, f"{top}/{folder}", None)
        for path, data, left in _renamed(study, contents, names):
            _add(archive, f"{top}/{path}", data)
            if left:
                remaining[path] = left


def _renamed(study: Study, contents: _Contents, names: Pseudonyms | None) -> Iterator[tuple[str, bytes, tuple[str, ...]]]:
    """(path, bytes, names that are left), one file at a time."""
    if names is None:
        yield from ((path, (study.folder / path).read_bytes(), ()) for path, _ in contents.files)
        return
    for path, _ in sorted(contents.files, key=lambda each: names.path(each[0])):
        data = names.file(path, (study.folder / path).read_bytes())
        yield names.path(path), data, tuple(names.left(path, data))


def _add(archive: tarfile.TarFile, path: str, data: bytes | None) -> None:
    """A file, or a folder without data; nothing of this machine's clock, users and permissions."""
    member = tarfile.TarInfo(path)
    member.mode = 0o644
    if data is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
    else:
        member.size = len(data)
    archive.addfile(member, io.BytesIO(data or b""))
