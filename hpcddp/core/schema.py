"""Plain data (from YAML or JSON) to frozen dataclasses and back.

`decode` is strict, for what people write: an unknown key is an error that names the nearest known one. `decode_record` is for
what hpcddp wrote itself, in this version or another: keys that a newer one added are passed over, and those that an older one
did not know, or that are null, have their defaults. Used on login nodes and, with the standard library alone, inside jobs
(Python 3.10).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

from hpcddp.core.errors import UsageError

T = TypeVar("T")
Path = tuple[Any, ...]
Decoder = Callable[[object], Any]

SHOWN_CHARACTERS = 60
"""Of a value in a record that does not fit."""

LARGEST_INT = 2**63 - 1
"""What a record's whole numbers have room in: 64 bits."""


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """In `Annotated[int, AtLeast(1)]`: the least value that makes sense."""

    minimum: float


Count = Annotated[int, AtLeast(0)]
Positive = Annotated[int, AtLeast(1)]
NonNegative = Annotated[float, AtLeast(0)]


class SchemaError(UsageError):
    """A value does not fit; `path` says where in the document (keys and list positions).

    `of_record`: what is wrong there, in the words for a file that hpcddp wrote itself.
    """

    def __init__(self, path: Path, message: str, of_record: str | None = None) -> None:
        super().__init__(path, message, of_record)
        self.path, self.message, self.of_record = path, message, of_record

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message

    def inside(self, *path: Any) -> SchemaError:
        """The same error, of a value that lies there in a larger document."""
        self.path = (*path, *self.path)
        return self


class MissingKeyError(SchemaError):
    """The mapping at `path` lacks `key`."""

    def __init__(self, key: str) -> None:
        super().__init__((), f"`{key}` is missing")
        self.key = key


class UnknownKeyError(SchemaError):
    """The last part of the path is no key of the mapping that it lies in."""

    def __init__(self, key: object, known: Iterable[str]) -> None:
        super().__init__((key,), "")
        self._nearest = did_you_mean(str(key), known)
        self.inside()

    def inside(self, *path: Any) -> SchemaError:
        super().inside(*path)
        where = f" in {dotted(self.path[:-1])}" if self.path[1:] else ""
        self.message = f"unknown key `{self.path[-1]}`{where}{self._nearest}"
        return self


def dotted(path: Path) -> str:
    """`('workload', 'batch_per_gpu')` as a user writes it: `workload.batch_per_gpu`."""
    return ".".join(str(part) for part in path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, else the list of all of them."""
    import difflib  # 1 ms of every command, for errors only

    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; known: {', '.join(words)}" if words else ""


def added_later(default: Any, **metadata: Any) -> Any:
    """A dataclass field that is not written where it has its default: not every record has the key.

    For fields that came after the first records: what an earlier version wrote stays as it is, byte for byte. `dict` as the
    default is an empty mapping, which has no hash. `metadata`: the field's, beside that.
    """
    if default is dict:
        return dataclasses.field(default_factory=dict, hash=False, metadata={"later": True, **metadata})
    return dataclasses.field(default=default, metadata={"later": True, **metadata})


def decode(cls: type[T], data: object, path: Path = ()) -> T:
    """`data` as a `cls`; raises SchemaError for an unknown or missing key, a wrong type or a number out of range."""
    return _decoded(cls, data, path, is_record=False)


def decode_record(cls: type[T], data: object, path: Path = ()) -> T:
    """The same of a record: unknown keys are passed over, null stands for a field's default, whole numbers must fit into 64 bits.

    A number need not be finite: a loss may have been none.
    """
    return _decoded(cls, data, path, is_record=True)


def encode(value: Any, *, keep_defaults: bool = True, keep_later: bool = False) -> Any:
    """The reverse of decode: plain dicts, lists and scalars; without `keep_defaults`, values equal to the default go.

    Fields that were added later go where they have their default, unless `keep_later`.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    encoded = functools.partial(encode, keep_defaults=keep_defaults, keep_later=keep_later)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        pairs = ((name, default, getattr(value, name)) for name, default in _defaults(cls).items())
        return {
            name: encoded(item)
            for name, default, item in pairs
            if item != default or (keep_defaults and (keep_later or name not in _later(cls)))
        }
    if isinstance(value, Mapping):
        return {key: encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    return value


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _defaults(cls: type) -> dict[str, Any]:
    return {field.name: _default(field) for field in dataclasses.fields(cls)}


@functools.cache
def _later(cls: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(cls) if field.metadata.get("later"))


def _decoded(cls: type[T], data: object, path: Path, *, is_record: bool) -> T:
    try:
        return typing.cast(T, _decoder(typing.cast(Any, cls), is_record)(data))
    except SchemaError as error:
        raise error.inside(*path) from None


@functools.cache
def _decoder(kind: Any, is_record: bool) -> Decoder:  # noqa: PLR0911 - one return per kind of type
    """What decodes values of that type; made once per type, since records have thousands of them."""
    if dataclasses.is_dataclass(kind):
        return functools.partial(_decode_dataclass, typing.cast(type, kind), is_record)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return functools.partial(_decode_number, _decoder(args[0], is_record), args[1].minimum)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(args, is_record)
    if origin is typing.Literal:
        return functools.partial(_decode_literal, args)
    if origin is tuple:
        return functools.partial(_decode_tuple, _decoder(args[0], is_record))
    if origin is not None and issubclass(origin, Mapping):
        return functools.partial(_decode_mapping, _decoder(args[1], is_record))
    if kind is Any or kind is object:
        return lambda data: data
    if kind is float:
        return functools.partial(_decode_float, is_record)
    return _decode_int if kind is int and is_record else functools.partial(_decode_scalar, kind)


@functools.cache
def _fields(cls: type, is_record: bool) -> tuple[dict[str, Decoder], dict[str, Any], tuple[str, ...]]:
    """By name each field's decoder and its default, and the names of those without a default."""
    hints, decoders, defaults = typing.get_type_hints(cls, include_extras=True), {}, _defaults(cls)
    for field in dataclasses.fields(cls):
        decoders[field.name] = _decoder(hints[field.name], is_record)
    return decoders, defaults, tuple(name for name, default in defaults.items() if default is dataclasses.MISSING)


def _decode_dataclass(cls: type, is_record: bool, data: object) -> Any:
    decoders, defaults, required = _fields(cls, is_record)
    items, values = _expect(dict, data), {}
    if not is_record:
        _refuse_unknown(items, decoders)
    for name in required:
        if name not in items:
            raise MissingKeyError(name)
    for key, item in items.items():
        if is_record and (key not in decoders or (item is None and defaults[key] is not dataclasses.MISSING)):
            continue
        try:
            values[key] = decoders[key](item)
        except SchemaError as error:
            raise error.inside(key) from None
    return cls(**values)


def _refuse_unknown(items: Iterable[object], known: Mapping[str, object]) -> None:
    for key in items:
        if key not in known:
            raise UnknownKeyError(key, known)


def _union_decoder(kinds: tuple[Any, ...], is_record: bool) -> Decoder:
    *others, last = (_decoder(kind, is_record) for kind in kinds if kind is not type(None))
    nullable = type(None) in kinds

    def decode_any(data: object) -> Any:
        if data is None and nullable:
            return None
        for decoder in others:
            with contextlib.suppress(SchemaError):
                return decoder(data)
        return last(data)

    return decode_any


def _decode_number(decoder: Decoder, minimum: float, data: object) -> Any:
    value = decoder(data)
    if value is not None and value < minimum:
        raise SchemaError((), f"{value} is below the minimum {minimum}", f"is {value}, below {minimum}")
    return value


def _decode_literal(known: tuple[Any, ...], data: object) -> Any:
    if not any(data == each and type(data) is type(each) for each in known):
        raise SchemaError((), f"{data!r} is not one of {', '.join(map(str, known))}")
    return data


def _decode_tuple(decoder: Decoder, data: object) -> Any:
    values: list[Any] = []
    try:
        for item in _expect(list, data):
            values.append(decoder(item))
    except SchemaError as error:
        raise error.inside(len(values)) if isinstance(data, list) else error from None
    return tuple(values)


def _decode_mapping(decoder: Decoder, data: object) -> Any:
    values: dict[str, Any] = {}
    for key, item in _expect(dict, data).items():
        try:
            values[_expect(str, key)] = decoder(item)
        except SchemaError as error:
            raise error.inside(key) if isinstance(key, str) else error from None
    return values


def _decode_float(is_record: bool, data: object) -> Any:
    if isinstance(data, int) and not isinstance(data, bool):
        return float(_decode_int(data) if is_record else data)
    return data if is_record and isinstance(data, float) else _decode_scalar(float, data)


def _decode_int(data: object) -> Any:
    value = _decode_scalar(int, data)
    if abs(value) > LARGEST_INT:
        raise SchemaError((), f"{value} does not fit into 64 bits", f"is {_shown(value)}, too large")
    return value


def _decode_scalar(kind: type, data: object) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        raise SchemaError((), f"{data} is not a finite number")
    return _expect(kind, data)


def _expect(kind: type, data: object) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        words = f"{data!r} is {_named(type(data))}; {_named(kind)} is expected"
        raise SchemaError((), words, f"is {_shown(data)}, not {_named(kind)}")
    return data


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _named(kind: type) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", int: "a whole number", float: "a number", bool: "true/false"}
    return names.get(kind, "nothing" if kind is type(None) else kind.__name__)
