"""Types of the fields of dataclasses, taken apart for what describes or merges documents without decoding them."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any


@functools.cache
def field_kinds(cls: type) -> dict[str, Any]:
    """Name of each field -> its type, limits included."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of any other type that one. What is `Annotated` counts as what it annotates."""
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def accepts_null(kind: Any) -> bool:
    """Whether null is a value of that type."""
    return any(one in (type(None), Any, object) for one in alternatives(kind))


def item_kind(kind: Any, key: str) -> Any:
    """The type of what lies under `key` in a mapping of the type `kind`; `object` where it has no such key."""
    for one in alternatives(kind):
        origin = typing.get_origin(one)
        if dataclasses.is_dataclass(one):
            return field_kinds(typing.cast(type, one)).get(key, object)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return typing.get_args(one)[1]
    return object
