"""Opens a bundle in a temporary folder. It is not trusted: files that no bundle holds are refused, and more than fits.

Which files of a study a bundle holds, their paths say: packing asks here, too, and no other file passes.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from hpcddp.core.errors import UsageError
from hpcddp.core.records import naming
from hpcddp.core.text import thousands

Kind = Literal["records", "nodes", "scripts", "profiles", "logs"]
_LABEL = r"n\d+-g\d+-(?:b\d+|comm|script)-[0-9a-f]{12}"
_ATTEMPT = rf"{_LABEL}/r\d+/[\w.+-]*\.\d+"
_JOB = r"\.jobs/[\w.+-]+(?:/(?:\d+|preflight))?"

_KINDS: dict[Kind, str] = {
    "records": r"study\.json|prediction\.json|(?:submissions|outcomes)\.jsonl|bundle\.json"
    r"|preflight/[\w.+-]+\.\d+\.json|bench-data/[\w.+-]+/bench-data\.json"  # the last is of earlier versions, and not read
    rf"|{_LABEL}/point\.json"
    rf"|{_ATTEMPT}/(?:launch|transport|end|comm)\.json|{_ATTEMPT}/events\.jsonl|{_ATTEMPT}/epochs\.csv"
    rf"|{_ATTEMPT}/ranks/\d+\.(?:steps\.csv|buckets\.csv|error\.json|collectives\.json)",
    "nodes": rf"{_ATTEMPT}/nodes/[\w.-]+\.(?:json|node\.csv|gpus\.csv)",
    "scripts": rf"{_JOB}/job\.(?:sbatch|sh)|{_JOB}/(?:spec|state|exit)\.json|{_JOB}/(?:tasks|steps)\.jsonl|{_JOB}/cancelled",
    "profiles": rf"{_ATTEMPT}/ranks/\d+\.trace\.json\.gz|{_ATTEMPT}/inspector/[\w.-]+\.log",
    "logs": rf"{_JOB}/[\w.+-]+\.(?:out|err)|\.jobs/runner\.log",
}

_FOLDERS = re.compile(rf"{_LABEL}(?:/r\d+(?:/[\w.+-]*\.\d+)?)?")

_REASONS = (
    (r"\.code/.*", "the snapshot of the code that ran"),
    (r"(?:report|\.analysis)/.*", "the report: `hpcddp analyze` writes it again"),
    (r"\.jobs/(?:lock/.*|queue\.lock|runner\.(?:lock|json)|L\d+/cancel)", "locks and files of this machine's queue"),
    (r"\.jobs/elsewhere\.id", "the name of the study on hosts and in S3"),
    (r"\.jobs/[\w.+-]+/(?:request|ended)\.json", "requests to SageMaker, which name your account"),
    (r"\.jobs/[\w.+-]+\.smoke/.*", "results of a smoke test"),
    (r"\.jobs/[\w.+-]+\.data/.*", "records of preparing a data set"),
    (rf"{_JOB}/torchrun\.[\w.-]+\.json", "how torchrun ended on each node, for `hpcddp status`"),
    (r"\.jobs/[\w.+-]+/preflight/hosts", "the nodes of one allocation, which the runs' records contain"),
    (rf"{_ATTEMPT}/checkpoints/.*", "checkpoints: a run that is done needs none"),
    (rf"{_ATTEMPT}/\.end\.reserve", "reserved disk space for end.json"),
    (r".*\.pkl", "submitit's pickles: loading those of others is unsafe"),
)


def kind_of(path: str) -> Kind | None:
    """What a file is by its path below the study; None for what no bundle holds."""
    if leads_elsewhere(path):
        return None
    return next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, path)), None)


def is_folder_of_runs(path: str) -> bool:
    """Whether it is the folder of a point, a run or an attempt: a bundle holds these even where they are empty."""
    return _FOLDERS.fullmatch(path) is not None and not leads_elsewhere(path)


def leads_elsewhere(path: str) -> bool:
    """Whether a part of it stands for another folder, as in `.jobs/../job.sbatch`."""
    return not {"", ".", ".."}.isdisjoint(path.split("/"))


def why_left_out(path: str) -> str:
    """Why a file without a kind is left out, in words."""
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, path)), "files that hpcddp did not write")


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
    """`place` itself where it is a folder; of a bundle, the study unpacked into a temporary folder. UsageError where the file is
    no bundle, is damaged, or would not fit.
    """
    if not place.is_file():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="hpcddp-") as folder:
        try:
            study = _unpack(place, Path(folder))
        except READ_ERRORS as error:
            raise UsageError(f"{place} is damaged, or not from `hpcddp bundle`: {error}") from error
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
        return f"it unpacks to more than {most_bytes / 1e9:.1f} GB, more than the free space"
    return f"it holds more than {thousands(MOST_MEMBERS)} files" if count > MOST_MEMBERS else "it holds more than one study"


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
