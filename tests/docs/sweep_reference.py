"""docs/sweep-reference.md from the dataclasses that read a sweep: each field's type and default, and the sentence below it."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from hpcddp.cluster.field_docs import as_yaml, field_docs
from hpcddp.sweep.file import Sweep

HEAD = """# Keys of a sweep

Every key of a sweep, made by `make docs` from the code; [sweeps.md](sweeps.md) explains how to write one. `value` is the default,
and what else it may be; a key that shows a type only is null unless given. Changing a key outside the id makes no other point.
"""

UNITS = {"min": "minutes", "mb": "MiB", "percent": "%", "hz": "per second", "seconds": "seconds", "hours": "hours"}
"""Last word of a key -> the unit of its number."""

TYPES: Mapping[Any, str] = {int: "integer", float: "number", bool: "boolean", str: "text"}


def page() -> str:
    """All of it, in Markdown: a table for the sweep itself and for each part of it."""
    return "\n".join([HEAD, *_section("", Sweep)])


def sections(cls: type = Sweep, prefix: str = "") -> Iterator[tuple[str, type]]:
    """`""`, `workload`, `workload.data`, ... with their dataclasses."""
    yield prefix, cls
    for field in dataclasses.fields(cls):
        kind = typing.get_type_hints(cls)[field.name]
        if dataclasses.is_dataclass(kind):
            yield from sections(typing.cast(type, kind), f"{prefix}.{field.name}".lstrip("."))


def _section(prefix: str, cls: type) -> Iterator[str]:
    for path, part in sections(cls, prefix):
        yield f"## {f'`{path}`' if path else 'The sweep'}\n"
        yield f"{as_yaml(inspect.getdoc(part) or '')}\n"
        yield "| key | value | meaning |\n|---|---|---|"
        yield from _rows(path, part)
        yield ""


def _rows(path: str, cls: type) -> Iterator[str]:
    meaning, hints = field_docs(cls), typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        key = f"{path}.{field.name}".lstrip(".")
        cells = (f"`{key}`", value_of(_type(field, hints[field.name], key), _default(field)), meaning.get(field.name, ""))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def value_of(kind: str, default: str) -> str:
    """Type and default in one cell: a default shows its own type, and null goes without saying."""
    if default in ("", "``", "`null`"):
        return kind
    if default == "required":
        return f"{kind}, required"
    if kind.startswith("`"):
        return f"{default}, or {', '.join(choice for choice in kind.split(' or ') if choice != default)}"
    limits = kind.partition(", ")[2]
    return f"{default}, {limits}" if limits else default


def _type(field: dataclasses.Field[Any], kind: Any, key: str) -> str:
    if dataclasses.is_dataclass(kind):
        return f"[keys](#{key.replace('.', '')})"
    words = _words(kind)
    if words:
        (kind,) = (arg for arg in typing.get_args(kind) if arg not in words)
    unit = UNITS.get(field.name.rpartition("_")[2]) if _plain(kind) in (int, float) else None
    least = [f"≥ {limit.minimum}" for limit in getattr(_required(kind), "__metadata__", ())]
    parts = [_named(_plain(kind)), unit, *least]
    text = ", ".join(part for part in parts if part)
    return f"{text}, or {' or '.join(map(_named, words))}" if words else text


def _words(kind: Any) -> list[Any]:
    """Of a number that may be a word, too: the types of the words."""
    choices = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else ()
    words = [choice for choice in choices if typing.get_origin(choice) is typing.Literal]
    return words if len(choices) == len(words) + 1 and types.NoneType not in choices else []


def _required(kind: Any) -> Any:
    """The type without `| None`."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = (arg for arg in typing.get_args(kind) if arg is not types.NoneType)
    return kind


def _plain(kind: Any) -> Any:
    """The type without `| None`, and without limits."""
    required = _required(kind)
    return typing.get_args(required)[0] if typing.get_origin(required) is typing.Annotated else required


def _named(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{arg}`" for arg in args)
    if origin is tuple:
        return f"list of {TYPES[args[0]]}s" if args[0] is int else "list of texts"
    return TYPES.get(kind) or ("mapping of groups" if typing.get_origin(args[-1]) is Mapping else "mapping")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING or dataclasses.is_dataclass(field.default):
        return ""
    if field.default is dataclasses.MISSING:
        return "required"
    return f"`{_yaml(field.default)}`"


def _yaml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


if __name__ == "__main__":
    sys.stdout.write(page())
