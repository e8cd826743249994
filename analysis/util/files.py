"""Files of a run root, which may belong to anyone and be damaged in any way: only regular ones are read. And what the analysis
writes: where it lies (in the study's folder, or in the user's cache where that cannot be written), how (never through a link,
never half, without characters that terminals or browsers act on), with whose libraries, and what an error costs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import json
import math
import os
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import hpcddp
from hpcddp import __version__
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.records import write_aside
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record
from hpcddp.core.text import escape_controls, escape_json, one_line, thousands

T = TypeVar("T")

MOST_BYTES = 1 << 28
"""Of one JSON file; end.json of 100,000 ranks has 50 MB."""

DEEPEST = 64
"""Objects and lists within each other; what hpcddp writes has 8."""

LONGEST = 20
"""Digits of a whole number: 64 bits."""


def is_there(file: Path) -> bool:
    """Whether the path exists, if only as a broken link."""
    return os.path.lexists(file)


def read_regular(file: Path, most_bytes: int = MOST_BYTES, *, cut: bool = False) -> bytes:
    """All its bytes, with `cut` no more than `most_bytes`; OSError where there is none, ValueError where it is too large or no
    regular file: reading a FIFO would wait."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb") as opened:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no file")
        if found.st_size > most_bytes and not cut:
            raise ValueError(f"it has {thousands(found.st_size)} bytes")
        return opened.read(min(found.st_size, most_bytes))


def read_object(file: Path) -> dict[str, Any]:
    """As read_raw does, but what terminals, browsers and fonts would act on or stumble over is spelled out in every string."""
    plain: dict[str, Any] = escape_json(read_raw(file))
    return plain


def read_raw(file: Path) -> dict[str, Any]:
    """A JSON object whose numbers are finite and fit in 64 bits; FileNotFoundError, or HpcddpError where it is damaged."""
    try:
        plain = json.loads(read_regular(file), parse_constant=_finite, parse_float=_finite, parse_int=_short)
        if not isinstance(plain, dict):
            raise ValueError("it holds no JSON object")
        _check_depth(plain)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HpcddpError(f"{file} is damaged: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise HpcddpError(f"{file} is damaged: {error}") from error
    return plain


def record_or_none(cls: type[T], file: Path) -> T | None:
    """The same as a record, for what is only shown: None where it cannot be read."""
    try:
        return decode_record(cls, read_object(file))
    except (OSError, HpcddpError):
        return None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def _short(text: str) -> int:
    if len(text) > LONGEST:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _check_depth(plain: Any, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise ValueError(f"it is more than {DEEPEST} levels deep")
    inner = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    for each in inner:
        _check_depth(each, depth + 1)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A disk, or what a user may have of it, is full."""

MESSAGE_CHARACTERS = 160
"""Of an error's own message: some libraries put all arguments into it."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """What an error cost, and why, in words."""

    of: str
    reason: str


class Failures(list[Failure]):
    """The failures of one analysis, in their order."""

    def contain(self, of: str, work: Callable[[], Result], instead: Result) -> Result:
        """Returns what the work returns; if it raises, adds a Failure and returns `instead`."""
        found = contain(of, work)
        if not isinstance(found, Failure):
            return found
        self.append(found)
        return instead

    def by_reason(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in self:
            found.setdefault(each.reason, []).append(each.of)
        return found


def contain(of: str, work: Callable[[], Result]) -> Result | Failure:
    """Returns what the work returns, or why it failed. MemoryError and KeyboardInterrupt are not caught."""
    try:
        return work()
    except MemoryError:
        raise
    except HpcddpError as error:
        return Failure(of, str(error))
    except OSError as error:
        then = "; make room, or name another folder with -o" if error.errno in NO_ROOM else ""
        return Failure(of, f"{error.strerror or error}{then}")
    except Exception as error:
        return Failure(of, reported(error))


def reported(error: Exception) -> str:
    """A sentence: the error, the line of hpcddp it came from, and the request to report it."""
    message = one_line(f"{type(error).__name__}: {error}")[:MESSAGE_CHARACTERS]
    return f"{message} ({_place(error)}): a fault in hpcddp {__version__}; please report this line where you got hpcddp from"


def _place(error: Exception) -> str:
    """`hpcddp/analysis/records/steps.py:88`: the innermost line of hpcddp in the traceback."""
    above = Path(hpcddp.__file__).parent.parent
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(above / "hpcddp")]
    last = ours[-1] if ours else frames[-1]
    return f"{Path(last.filename).relative_to(above) if ours else Path(last.filename).name}:{last.lineno}"


REPORT, CACHE = "report", ".analysis"


def report_folder(study: Study) -> Path:
    """`report/` in the study; where that cannot be written, a folder of the user's cache."""
    return _beside(study, REPORT) or user_cache_folder("reports", study.folder)


def analysis_cache_folder(study: Study) -> Path:
    """`.analysis/` in the study; where that cannot be written, a folder of the user's cache."""
    return _beside(study, CACHE) or user_cache_folder("analysis", study.folder)


def refused_links(study: Study) -> list[str]:
    """A sentence for each of these folders that is a link which is not followed."""
    found = {study.folder / name: _leads_away(study.folder / name, study.folder) for name in (REPORT, CACHE)}
    then = "nothing is written through it; remove it, or name a folder with -o"
    return [f"{folder} {why}: {then}" for folder, why in found.items() if why]


def _beside(study: Study, name: str) -> Path | None:
    folder = study.folder / name
    return None if _leads_away(folder, study.folder) or _why_not(folder) else folder


def _leads_away(folder: Path, above: Path) -> str | None:
    """Why a folder is a link that must not be followed: another user's, or out of the folder above; None for all others."""
    if not folder.is_symlink():
        return None
    if folder.lstat().st_uid != os.geteuid():
        return "is a link that another user made"
    target = folder.resolve()
    return None if target.is_relative_to(above.resolve()) else f"is a link that leads out of {above.name}, to {target}"


def user_cache_folder(kind: str, of: Path, env: Mapping[str, str] = os.environ) -> Path:
    """`~/.cache/hpcddp/KIND/NAME-HASH` (under XDG_CACHE_HOME where that is set), always the same for the same path."""
    base = env.get("XDG_CACHE_HOME", "")
    place = of.resolve()
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "hpcddp" / kind / f"{place.name}-{digest}"


def check_writable(folder: Path) -> None:
    """UsageError where a folder that -o names cannot be written to; a full disk is no fault of the name."""
    why = _leads_away(folder, folder.parent)
    error = None if why else _why_not(folder)
    if error is not None and error.errno not in NO_ROOM:
        why = f"cannot be written ({error.strerror})"
    if why:
        raise UsageError(f"{folder} {why}; name another folder with -o") from error


def _why_not(folder: Path) -> OSError | None:
    """The error of creating a file there. It is tried, because root passes all permissions, but not a read-only mount."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error
    return None


def write_plain(file: Path, plain: Mapping[str, Any]) -> None:
    """JSON, two spaces, sorted keys."""
    text = json.dumps(escape_json(plain), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(file, text + "\n")


def write_text(file: Path, text: str) -> None:
    """In UTF-8, with nothing in it that a terminal or a browser would act on."""
    write_file(file, escape_controls(text).encode())


def write_file(file: Path, data: bytes) -> None:
    """Replaces the file, or a link in its place, at once; where that fails, the file of an earlier analysis is removed."""
    try:
        write_aside(file, data, sync=False)
    except OSError:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        raise


def library(module: str, extra: str) -> Any:
    """The module; HpcddpError where it, or one that it needs, is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HpcddpError(f"{error.name or module} is not installed here: pip install 'hpcddp[{extra}]'") from error


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Sets these environment variables until the block ends."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
