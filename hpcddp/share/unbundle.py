"""Opens a bundle in a temporary folder. It is not trusted: files that no bundle holds are refused, and more than fits."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from hpcddp.core.errors import UsageError
from hpcddp.core.records import naming
from hpcddp.share.archive_paths import is_folder_of_runs, kind_of

MOST_BYTES = 64 * 10**9
"""Unpacked. 50 million step rows are 5 GB."""

MOST_MEMBERS = 1_000_000

AT_ONCE = 1 << 20
"""Bytes read at a time; no header of a bundle is larger."""


class _Damaged(Exception):
    """The message says what is wrong."""


READ_ERRORS = (_Damaged, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, FileExistsError)
"""What reading a file that is no bundle, or a damaged one, may raise."""


class _Bounded(gzip.GzipFile):
    """Refuses to read more at once than a bundle needs: a header may claim any length."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= AT_ONCE:
            raise _Damaged("a header in it is too long")
        return super().read(size)


@contextlib.contextmanager
def opened_study(place: Path) -> Iterator[Path]:
    """`place` itself where it is a folder; of a bundle, the study unpacked into a temporary folder.

    UsageError where the file is no bundle, is damaged, or would not fit.
    """
    if not place.is_file():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="hpcddp-") as folder:
        try:
            study = _unpack(place, Path(folder))
        except READ_ERRORS as error:
            raise UsageError(f"{place}: not a bundle that `hpcddp bundle` wrote, or damaged: {error}") from error
        yield study


def _unpack(file: Path, folder: Path) -> Path:
    """Returns the study's folder."""
    most_bytes = min(MOST_BYTES, shutil.disk_usage(folder).free)
    total, tops = 0, set[str]()
    with _Bounded(file, "rb") as packed, tarfile.open(fileobj=packed, mode="r:") as archive:
        for count, member in enumerate(iter(archive.next, None), start=1):
            tops.add(_checked(member))
            total += member.size
            if total > most_bytes or count > MOST_MEMBERS or len(tops) > 1:
                raise _Damaged(_why_not(total, most_bytes, count))
            _extract(archive, member, folder)
            archive.members.clear()  # type: ignore[attr-defined]  # which would grow with every file
    if not tops:
        raise _Damaged("it is empty")
    return folder / tops.pop()


def _why_not(total: int, most_bytes: int, count: int) -> str:
    if total > most_bytes:
        return f"it unpacks to more than {most_bytes / 1e9:.1f} GB, which do not fit"
    return f"it holds more than {MOST_MEMBERS:,} files" if count > MOST_MEMBERS else "it holds more than one study"


def _checked(member: tarfile.TarInfo) -> str:
    """The name of the study's folder; _Damaged for anything that no bundle holds: links, devices, other paths."""
    top, _, path = member.name.partition("/")
    known = kind_of(path) is not None if member.isreg() else member.isdir() and is_folder_of_runs(path)
    if not known or member.size < 0 or top in ("", ".", "..") or not top.isprintable():
        raise _Damaged(f"{member.name!r} is in it")
    return top


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Bytes only: no owner, no permissions, no times."""
    target = folder / member.name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = archive.extractfile(member)
    assert source is not None
    with naming(target), target.open("xb") as out:
        shutil.copyfileobj(source, out, AT_ONCE // 2)
    if target.stat().st_size != member.size:
        raise _Damaged(f"{member.name} ends too early")
