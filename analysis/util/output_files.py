"""Writes all files of the analysis: never through a link, never half, without characters that terminals or browsers act on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcddp.core.records import write_aside
from hpcddp.core.text import escape_controls, escape_json


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
