"""Reads files of a run root, which may belong to anyone and be damaged in any way: only regular files are read."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

from hpcddp.core.errors import HpcddpError
from hpcddp.core.schema import decode_record
from hpcddp.core.text import escape_json

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
    """All its bytes; OSError where there is none, ValueError where it is too large or no regular file: reading a FIFO would wait.

    `cut`: a file that is too large is cut off instead.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb") as opened:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no file")
        if found.st_size > most_bytes and not cut:
            raise ValueError(f"it has {found.st_size:,} bytes")
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
