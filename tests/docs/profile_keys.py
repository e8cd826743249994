"""The end of docs/clusters.md, from the code and the profiles: every key of a profile.

What stands above the mark is written by hand, and stays as it is.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcddp.cluster.field_docs import as_yaml, field_docs
from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.core.point import Workload
from hpcddp.core.schema import AtLeast
from tests.docs.sweep_reference import value_of

FILE = Path(__file__).parents[2] / "docs" / "clusters.md"

MARK = "<!-- From here on `make docs` writes this page. -->"

NO_KEYS = ("facts", "file")
"""Fields of a profile that are no keys of its file."""

KEYS = """
## Keys of a profile

`NAME` stands for a name of yours, `[]` for each entry of a list. A key that shows a type only is null, or empty, unless it is
given. `default_workload` has the keys of a sweep's [workload](sweep-reference.md#workload).

### A fact

Any value may stand as `{value: 32, grade: A, source: wiki}`, with these keys:

| key | meaning |
|---|---|
| `value` | the value itself, null where it is unknown |
| `grade` | A: the site's or vendor's own pages; B: several independent users; C: one user, or an inference; `"?"`: not verified |
| `source` | a key of `sources` |
| `note` | for readers |
| `conflicts` | a list of facts: what other sources say instead |
"""


def page() -> str:
    """The whole page."""
    by_hand = FILE.read_text(encoding="utf-8").partition(MARK)[0].rstrip("\n")
    tables = "\n".join(line for path, cls in sections() for line in _table(path, cls))
    return f"{by_hand}\n\n{MARK}\n{KEYS}\n{tables}"


def sections() -> Iterator[tuple[str, type]]:
    """`""`, `node_types.NAME`, `slurm`, `slurm.qos[]`, ... with their dataclasses, each once."""
    first: dict[type, str] = {}
    for path, cls in _sections(ClusterProfile, ""):
        first.setdefault(cls, path)
    yield from ((path, cls) for cls, path in first.items())


def _sections(cls: type, prefix: str) -> Iterator[tuple[str, type]]:
    yield prefix, cls
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        for end, kind in _parts(hints[field.name]):
            if dataclasses.is_dataclass(kind) and kind is not Workload and field.name not in NO_KEYS and kind is not Fact:
                yield from _sections(typing.cast(type, kind), f"{prefix}.{field.name}{end}".lstrip("."))


def keys() -> list[str]:
    """Every key of a profile, such as `slurm.qos[].max_nodes`."""
    return [
        f"{path}.{field.name}".lstrip(".")
        for path, cls in sections()
        for field in dataclasses.fields(cls)
        if path or field.name not in NO_KEYS
    ]


def _parts(kind: Any) -> Iterator[tuple[str, Any]]:
    """What a value of the type is made of, with what its key is followed by: nothing, `[]` or `.NAME`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        yield from (("[]" + end, part) for end, part in _parts(args[0]))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from ((".NAME" + end, part) for end, part in _parts(args[1]))
    elif args and origin is not typing.Literal:
        yield from (found for arg in args if arg is not type(None) for found in _parts(arg))
    elif not isinstance(kind, AtLeast | str | int | float):
        yield "", kind


def _table(path: str, cls: type) -> Iterator[str]:
    meaning, hints = field_docs(cls), typing.get_type_hints(cls, include_extras=True)
    yield f"### {f'`{path}`' if path else 'The profile'}\n"
    yield f"{as_yaml(inspect.getdoc(cls) or '')}\n"
    yield "| key | value | meaning |\n|---|---|---|"
    for field in dataclasses.fields(cls):
        if path or field.name not in NO_KEYS:
            cells = (f"`{field.name}`", value_of(_type(hints[field.name]), _default(field)), meaning.get(field.name, ""))
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


TYPES = {int: "integer", float: "number", bool: "boolean", str: "text", object: "any"}


def _type(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{arg}`" for arg in args)
    if origin is tuple:
        return f"list of {_type(args[0])}"
    if origin is typing.Annotated:
        return f"{_type(args[0])}, ≥ {args[1].minimum}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"{_type(args[1])} by name"
    if args:
        return " or ".join(_type(arg) for arg in args if arg is not type(None))
    return "keys" if dataclasses.is_dataclass(kind) else TYPES[kind]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING or dataclasses.is_dataclass(field.default) or field.default == ():
        return ""
    if field.default is dataclasses.MISSING:
        return "required"
    if isinstance(field.default, tuple):
        return "one without limits"
    return f"`{ {'None': 'null', 'True': 'true', 'False': 'false'}.get(str(field.default), str(field.default)) }`"
