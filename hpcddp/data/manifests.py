"""Manifests of prepared folders, read with care: somebody else, or another version, may have written them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from hpcddp.core.errors import UsageError
from hpcddp.core.schema import SchemaError, decode

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
        raise UsageError(f"{file} is no manifest that this version reads: {error}; {advice}") from error
