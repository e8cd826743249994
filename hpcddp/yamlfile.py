"""YAML 1.2 in: `1:30:00` and `no` stay text, a repeated key is an error, and every complaint has its file:line:column."""

from __future__ import annotations

import io
from pathlib import Path as FilePath
from typing import Any, TypeVar

from hpcddp.errors import UsageError
from hpcddp.schema import Path, SchemaError, decode

T = TypeVar("T")


def read_yaml(file: FilePath) -> Any:
    """The document as plain dicts, lists and scalars; UsageError with the position where it is not valid YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"{file}: cannot be read: {reason}") from error
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UsageError(f"{file}{where}: {error.problem or error.context}") from error
    except YAMLError as error:
        raise UsageError(f"{file}: {error}") from error


def decode_file(cls: type[T], data: object, file: FilePath) -> T:
    """`data`, read from `file`, as a `cls`; a complaint names the line it is about."""
    try:
        return decode(cls, data)
    except SchemaError as error:
        raise located(error, file) from error


def located(error: SchemaError, file: FilePath) -> UsageError:
    """The same complaint with the line and column of the key it is about in front."""
    line, column = _position(file, error.path)
    return UsageError(f"{file}:{line}:{column}: {error.message}")


def _position(file: FilePath, path: Path) -> tuple[int, int]:
    """1-based line and column of the deepest part of `path` that is in the file."""
    from ruamel.yaml import YAML

    node = YAML(typ="safe", pure=True).compose(io.StringIO(file.read_text(encoding="utf-8")))
    mark = node.start_mark if node is not None else None
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        mark, node = found
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _child(node: Any, part: object) -> tuple[Any, Any] | None:
    """Position and node of one key of a mapping, or one entry of a list."""
    if isinstance(part, int) and isinstance(node.value, list) and part < len(node.value):
        item = node.value[part]
        return (item.start_mark, item) if not isinstance(item, tuple) else None
    if node.id == "mapping":
        for key, value in node.value:
            if key.value == part:
                return key.start_mark, value
    return None
