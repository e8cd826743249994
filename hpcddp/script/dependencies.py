"""Which values each line of a script depends on, found by changing them: one value at a time, a little, and the script is
rendered again. A value is named for a line if and only if such a change changes that line.

Values that are not given (null) are passed over: a line is what is there.
"""

from __future__ import annotations

import functools
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from difflib import SequenceMatcher
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.schema import Path, decode, dotted

Render = Callable[[Mapping[str, Any]], Sequence[str]]
"""Records by name to the lines of a script; HpcddpError for those that no script is made of."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """A record that scripts are made of, as plain data."""

    cls: type
    plain: Any
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Key (`layout.node_type`) -> what may stand there, where only names of something will do."""

    @functools.cached_property
    def record(self) -> Any:
        """The record itself."""
        return decode(self.cls, self.plain)


@dataclass(frozen=True, kw_only=True)
class InputValue:
    """One value of an input."""

    input: str
    path: Path
    value: object


def dependencies(render: Render, inputs: Mapping[str, Input]) -> tuple[Sequence[str], list[list[InputValue]]]:
    """The script's lines, and for each the values that it depends on, in the order of the inputs."""
    records = {name: each.record for name, each in inputs.items()}
    base = render(records)
    found: list[list[InputValue]] = [[] for _ in base]
    for name, each in inputs.items():
        for path, value in _values(each, each.plain, ()):
            lines: set[int] = set()
            for plain in _changed(each, path, value):
                try:
                    other = render({**records, name: decode(each.cls, plain)})
                except HpcddpError:  # no script: this change says nothing
                    continue
                lines |= changed_lines(base, other)
            for line in lines:
                found[line].append(InputValue(input=name, path=path, value=value))
    return base, found


def changed_lines(base: Sequence[str], other: Sequence[str]) -> set[int]:
    """Positions of the lines of `base` that `other` has not; blank lines and those that only moved are none of them."""
    changed: list[int] = []
    added: Counter[str] = Counter()
    for operation, first, last, other_first, other_last in SequenceMatcher(None, base, other, autojunk=False).get_opcodes():
        if operation != "equal":
            changed += range(first, last)
            added.update(other[other_first:other_last])
    lines = set()
    for at in changed:
        if added[base[at]]:
            added[base[at]] -= 1
        elif base[at].strip():
            lines.add(at)
    return lines


def _values(source: Input, plain: Any, path: Path) -> Iterator[tuple[Path, object]]:
    """Every value that is given, every list, and every entry of it; of a mapping by name every entry."""
    if isinstance(plain, dict):
        if path and _is_mapping(source.cls, path[:-1]):
            yield path, plain
        for key, item in plain.items():
            yield from _values(source, item, (*path, key))
    elif isinstance(plain, list):
        yield path, plain
        for at, item in enumerate(plain):
            yield from _values(source, item, (*path, at))
    elif plain is not None:
        yield path, plain


def _changed(source: Input, path: Path, value: object) -> Iterator[Any]:
    """The input with another value there, or with none; of a list only the empty one, of an entry by name only none."""
    if isinstance(value, dict):
        yield _without(source.plain, path)
        return
    if isinstance(value, list):
        if value:
            yield _with(source.plain, path, [])
        return
    literals = _literals(source.cls, path)
    names = [word for word in source.names.get(dotted(path), ()) if word != value]
    for other in sorted(literals - {value}, key=str) if literals else [*_near(value), *names]:
        yield _with(source.plain, path, other)
    yield _without(source.plain, path)


def _near(value: object) -> list[object]:
    """Values of the same kind: the next ones, and for numbers also 10 % off, since less may be lost in rounding."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, *([value + value // 10, value - value // 10] if value >= 20 else [])]
    return [value * 1.1, value * 0.9] if isinstance(value, float) else [f"{value}x"]


def _with(plain: Any, path: Path, value: object) -> Any:
    if not path:
        return value
    copied = plain.copy()
    copied[path[0]] = _with(plain[path[0]], path[1:], value)
    return copied


def _without(plain: Any, path: Path) -> Any:
    """The same without that entry of a list or that key."""
    *parents, last = path
    parent = plain
    for part in parents:
        parent = parent[part]
    if isinstance(parent, list):
        return _with(plain, tuple(parents), [*parent[:last], *parent[last + 1 :]])
    return _with(plain, tuple(parents), {key: item for key, item in parent.items() if key != last})


def _literals(kind: Any, path: Path) -> set[object]:
    """The values that a key may have where only some are possible; otherwise none."""
    return {arg for hint in _hints(kind, path) if typing.get_origin(hint) is typing.Literal for arg in typing.get_args(hint)}


def _is_mapping(kind: Any, path: Path) -> bool:
    """Whether the keys there are names of the user's."""
    return any(_is_subclass(typing.get_origin(hint), Mapping) for hint in _hints(kind, path))


def _hints(kind: Any, path: Path) -> Iterator[Any]:
    """The types that a value may have there."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        yield from _hints(args[0], path)
    elif origin in (typing.Union, types.UnionType):
        yield from (hint for arg in args for hint in _hints(arg, path))
    elif not path:
        yield kind
    elif is_dataclass(kind):
        hint = typing.get_type_hints(kind, include_extras=True).get(path[0])
        yield from _hints(hint, path[1:])
    elif _is_subclass(origin, tuple) or _is_subclass(origin, Mapping):
        yield from _hints(args[-1 if _is_subclass(origin, Mapping) else 0], path[1:])


def _is_subclass(origin: Any, of: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, of)
