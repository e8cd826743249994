"""Plain data (from YAML or JSON) to frozen dataclasses and back: strict, with the nearest known key in the error.

Used on login nodes and, with the standard library alone, inside jobs (Python 3.10).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from hpcddp.core.errors import UsageError

T = TypeVar("T")
Path = tuple[Any, ...]


class SchemaError(UsageError):
    """A value does not fit; `path` says where in the document (keys and list positions)."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{dotted(path)}: {message}" if path else message)
        self.path = path
        self.message = message


def dotted(path: Path) -> str:
    """`('workload', 'batch_per_gpu')` as a user writes it: `workload.batch_per_gpu`."""
    return ".".join(str(part) for part in path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, else the list of all of them."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; known: {', '.join(words)}" if words else ""


def at_least(minimum: float, default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field whose number may not be below `minimum`."""
    return dataclasses.field(default=default, metadata={"minimum": minimum})


def added_later(default: Any) -> Any:
    """A dataclass field that came after the first records: it is not written where it has its default. An earlier
    version that reads the record knows no such key, and what it wrote stays as it is, byte for byte.
    """
    return dataclasses.field(default=default, metadata={"later": True})


def decode(cls: type[T], data: object, path: Path = ()) -> T:
    """`data` as a `cls`; raises SchemaError for an unknown or missing key, a wrong type or a number out of range."""
    return typing.cast(T, _decode(cls, data, path))


def encode(value: Any, *, keep_defaults: bool = True) -> Any:
    """The reverse of decode: plain dicts, lists and scalars; without `keep_defaults`, values equal to the default go.

    Fields that were added later go in any case where they have their default.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        pairs = ((name, default, getattr(value, name)) for name, default in _defaults(cls).items())
        return {
            name: encode(item, keep_defaults=keep_defaults)
            for name, default, item in pairs
            if item != default or (keep_defaults and name not in _later(cls))
        }
    if isinstance(value, Mapping):
        return {key: encode(item, keep_defaults=keep_defaults) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item, keep_defaults=keep_defaults) for item in value]
    return value


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _fields(cls: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


@functools.cache
def _defaults(cls: type) -> dict[str, Any]:
    return {name: _default(field) for name, field in _fields(cls).items()}


@functools.cache
def _later(cls: type) -> frozenset[str]:
    return frozenset(name for name, field in _fields(cls).items() if field.metadata.get("later"))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(kind: Any, data: object, path: Path) -> Any:  # noqa: PLR0911 - one return per kind of type
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast(type, kind), data, path)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_optional(args, data, path)
    if origin is typing.Literal:
        if not any(data == known and type(data) is type(known) for known in args):
            raise SchemaError(path, f"{data!r} is not one of {', '.join(map(str, args))}")
        return data
    if origin is tuple:
        return tuple(_decode(args[0], item, (*path, i)) for i, item in enumerate(_expect(list, data, path)))
    if origin is not None and issubclass(origin, Mapping):
        return {_key(k, path): _decode(args[1], v, (*path, k)) for k, v in _expect(dict, data, path).items()}
    if kind is Any or kind is object:
        return data
    return _decode_scalar(kind, data, path)


def _decode_record(cls: type, data: object, path: Path) -> Any:
    items = _expect(dict, data, path)
    fields = _fields(cls)
    for key in items:
        if key not in fields:
            where = f" in {dotted(path)}" if path else ""
            raise SchemaError((*path, key), f"unknown key `{key}`{where}{did_you_mean(str(key), fields)}")
    missing = [name for name, default in _defaults(cls).items() if default is dataclasses.MISSING and name not in items]
    if missing:
        raise SchemaError(path, f"`{missing[0]}` is missing")
    values = {key: _decode(_hints(cls)[key], value, (*path, key)) for key, value in items.items()}
    for key, value in values.items():
        minimum = fields[key].metadata.get("minimum")
        if minimum is not None and value is not None and value < minimum:
            raise SchemaError((*path, key), f"{value} is below {minimum}, the least that makes sense")
    return cls(**values)


def _decode_optional(args: tuple[Any, ...], data: object, path: Path) -> Any:
    if data is None and type(None) in args:
        return None
    kinds = [kind for kind in args if kind is not type(None)]
    for kind in kinds[:-1]:
        try:
            return _decode(kind, data, path)
        except SchemaError:
            continue
    return _decode(kinds[-1], data, path)


def _decode_scalar(kind: type, data: object, path: Path) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(data, float) and not math.isfinite(data):
        raise SchemaError(path, f"{data} is not a finite number")
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise SchemaError(path, f"{data!r} is {_named(type(data))}; {_named(kind)} is expected")
    return data


def _expect(kind: type, data: object, path: Path) -> Any:
    if not isinstance(data, kind):
        raise SchemaError(path, f"{data!r} is {_named(type(data))}; {_named(kind)} is expected")
    return data


def _key(key: object, path: Path) -> str:
    return typing.cast(str, _expect(str, key, path))


def _named(kind: type) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", int: "a whole number", float: "a number", bool: "true/false"}
    return names.get(kind, "nothing" if kind is type(None) else kind.__name__)
