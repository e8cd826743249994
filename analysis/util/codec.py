"""Values as plain JSON and back, by their types: frozen records, mappings, sequences, tables and arrays within each other."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

import numpy as np
import pandas as pd

pd.set_option("mode.string_storage", "python")
"""Else pandas keeps texts as pyarrow does where that is installed: it has none for bytes of file names that are no UTF-8, and a
report is the same with it and without. Whatever reads a study imports this module."""


def to_plain(value: Any) -> Any:  # noqa: PLR0911  a case per type
    """What json writes as it is; numbers keep every bit. TypeError for what from_plain does not read back."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, Mapping):
        return [[to_plain(key), to_plain(each)] for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        values = [None if isinstance(each, float) and math.isnan(each) else each for each in value.ravel().tolist()]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": values}
    if isinstance(value, pd.DataFrame):
        return [[str(name), to_plain(column.to_numpy())] for name, column in value.items()]
    raise TypeError(f"{type(value).__name__} cannot be cached")


def from_plain(shape: Any, plain: Any) -> Any:  # noqa: PLR0911  a case per type
    """The value of that type which to_plain made `plain` of; ValueError, TypeError or KeyError where it cannot have been."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if shape is Any:
        return plain
    if origin in (Union, types.UnionType):
        return _of_union(inner, plain)
    if origin is Literal:
        return _checked(plain in inner, plain)
    if isinstance(shape, type) and dataclasses.is_dataclass(shape):
        hints = _hints(shape)
        _checked(isinstance(plain, dict) and set(plain) == set(hints), plain)
        return shape(**{name: from_plain(hint, plain[name]) for name, hint in hints.items()})
    if shape is pd.DataFrame:
        return pd.DataFrame({name: _array(column) for name, column in plain})
    if origin is np.ndarray:
        return _array(plain)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = plain.items() if isinstance(plain, dict) else plain
        return {from_plain(inner[0], key): from_plain(inner[1], each) for key, each in pairs}
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(from_plain(each, value) for each, value in zip(inner, plain, strict=True))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        items = [from_plain(inner[0], each) for each in _checked(isinstance(plain, list), plain)]
        return tuple(items) if origin is tuple else items
    allowed = (int, float) if shape is float else shape  # a whole number of nanoseconds may stand for a float
    return _checked(isinstance(plain, allowed) and (shape is bool or not isinstance(plain, bool)), plain)


def _of_union(shapes: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in shapes:
        return None
    for shape in shapes:
        try:
            return from_plain(shape, plain)
        except (ValueError, TypeError, KeyError):
            continue
    raise ValueError(f"{plain!r:.60} is none of {shapes}")


def _array(plain: Any) -> Any:
    """Of numbers, truth values or texts: never of objects that would have to be made."""
    dtype, values = np.dtype(plain["dtype"]), plain["values"]
    _checked(dtype.kind in "biufO", plain)
    _checked(all(value is None or isinstance(value, (bool, int, float, str)) for value in values), plain)
    return np.array(values, dtype=dtype).reshape(plain["shape"])


def _checked(holds: bool, plain: Any) -> Any:
    if not holds:
        raise ValueError(f"{plain!r:.60} is not what was cached")
    return plain


@functools.cache
def _hints(shape: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(shape)
    return {field.name: hints[field.name] for field in dataclasses.fields(shape)}
