"""The pages of docs/ that are made from the code, and all pages there are.

Tables of keys come from the dataclasses that read them. What stands above the mark in clusters.md is written by hand.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hpcddp.cluster.json_schema import as_yaml, field_docs
from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.core.point import Workload
from hpcddp.core.schema import AtLeast
from hpcddp.sweep.file import Sweep
from tests.docs.studies.page import page as study_page
from tests.docs.studies.text import study_pages

ROOT = Path(__file__).parents[2]

SWEEP_HEAD = """# Keys of a sweep

Every key of a sweep, made by `make docs` from the code; [sweeps.md](sweeps.md) explains how to write one. `value` is the default,
and what else it may be; a key that shows a type only is null unless given. Changing a key outside the id makes no other point.
"""

CLUSTERS_FILE = ROOT / "docs" / "clusters.md"

MARK = "<!-- From here on `make docs` writes this page. -->"

NO_KEYS = ("facts", "file")
"""Fields of a profile that are no keys of its file."""

PROFILE_HEAD = """
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

UNITS = {"min": "minutes", "mb": "MiB", "percent": "%", "hz": "per second", "seconds": "seconds", "hours": "hours"}
"""Last word of a key of a sweep -> the unit of its number."""

TYPES: Mapping[Any, str] = {int: "integer", float: "number", bool: "boolean", str: "text", object: "any"}


def sweep_page() -> str:
    """All of it, in Markdown: a table for the sweep itself and for each part of it."""
    lines = [SWEEP_HEAD]
    for path, cls in sweep_sections():
        prefix = f"{path}." if path else ""
        keys = {f"{prefix}{field.name}": (field, kind) for field, kind in _fields(cls)}
        values = {key: value_of(_sweep_type(field, kind, key), _default(field)) for key, (field, kind) in keys.items()}
        lines += _table(f"## {f'`{path}`' if path else 'The sweep'}", cls, values)
    return "\n".join(lines)


def clusters_page() -> str:
    """The whole page."""
    by_hand = CLUSTERS_FILE.read_text(encoding="utf-8").partition(MARK)[0].rstrip("\n")
    lines = list[str]()
    for path, cls in profile_sections():
        fields = [(field, kind) for field, kind in _fields(cls) if path or field.name not in NO_KEYS]
        values = {field.name: value_of(_profile_type(kind), _profile_default(field)) for field, kind in fields}
        lines += _table(f"### {f'`{path}`' if path else 'The profile'}", cls, values)
    return "\n".join([f"{by_hand}\n\n{MARK}\n{PROFILE_HEAD}", *lines])


def sweep_sections(cls: type = Sweep, prefix: str = "") -> Iterator[tuple[str, type]]:
    """`""`, `workload`, `workload.data`, ... with their dataclasses."""
    yield prefix, cls
    for field, kind in _fields(cls):
        if dataclasses.is_dataclass(kind):
            yield from sweep_sections(typing.cast(type, kind), f"{prefix}.{field.name}".lstrip("."))


def profile_sections() -> Iterator[tuple[str, type]]:
    """`""`, `node_types.NAME`, `slurm`, `slurm.qos[]`, ... with their dataclasses, each once."""
    first: dict[type, str] = {}
    for path, cls in _sections(ClusterProfile, ""):
        first.setdefault(cls, path)
    yield from ((path, cls) for cls, path in first.items())


def profile_keys() -> list[str]:
    """Every key of a profile, such as `slurm.qos[].max_nodes`."""
    named = ((path, field.name) for path, cls in profile_sections() for field in dataclasses.fields(cls))
    return [f"{path}.{name}".lstrip(".") for path, name in named if path or name not in NO_KEYS]


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


def _fields(cls: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    yield from ((field, hints[field.name]) for field in dataclasses.fields(cls))


def _table(heading: str, cls: type, values: Mapping[str, str]) -> Iterator[str]:
    """A row per key, with the sentence below its field."""
    meaning = field_docs(cls)
    yield f"{heading}\n"
    yield f"{as_yaml(inspect.getdoc(cls) or '')}\n"
    yield "| key | value | meaning |\n|---|---|---|"
    for key, value in values.items():
        cells = (f"`{key}`", value, meaning.get(key.rpartition(".")[2], ""))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _sections(cls: type, prefix: str) -> Iterator[tuple[str, type]]:
    yield prefix, cls
    for field, hint in _fields(cls):
        for end, kind in _parts(hint):
            if dataclasses.is_dataclass(kind) and kind is not Workload and field.name not in NO_KEYS and kind is not Fact:
                yield from _sections(typing.cast(type, kind), f"{prefix}.{field.name}{end}".lstrip("."))


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


def _choices(kind: Any) -> str:
    return " or ".join(f"`{arg}`" for arg in typing.get_args(kind))


def _profile_type(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _choices(kind)
    if origin is tuple:
        return f"list of {_profile_type(args[0])}"
    if origin is typing.Annotated:
        return f"{_profile_type(args[0])}, ≥ {args[1].minimum}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"{_profile_type(args[1])} by name"
    if args:
        return " or ".join(_profile_type(arg) for arg in args if arg is not type(None))
    return "keys" if dataclasses.is_dataclass(kind) else TYPES[kind]


def _sweep_type(field: dataclasses.Field[Any], kind: Any, key: str) -> str:
    if dataclasses.is_dataclass(kind):
        return f"[keys](#{key.replace('.', '')})"
    words = _words(kind)
    if words:
        (kind,) = (arg for arg in typing.get_args(kind) if arg not in words)
    required = _required(kind)
    plain = typing.get_args(required)[0] if typing.get_origin(required) is typing.Annotated else required
    unit = UNITS.get(field.name.rpartition("_")[2]) if plain in (int, float) else None
    least = [f"≥ {limit.minimum}" for limit in getattr(required, "__metadata__", ())]
    text = ", ".join(part for part in (_named(plain), unit, *least) if part)
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


def _named(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _choices(kind)
    if origin is tuple:
        return f"list of {TYPES[args[0]]}s" if args[0] is int else "list of texts"
    return TYPES.get(kind) or ("mapping of groups" if typing.get_origin(args[-1]) is Mapping else "mapping")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING or dataclasses.is_dataclass(field.default):
        return ""
    return "required" if field.default is dataclasses.MISSING else f"`{_yaml(field.default)}`"


def _profile_default(field: dataclasses.Field[Any]) -> str:
    if isinstance(field.default, tuple):
        return "one without limits" if field.default else ""
    return _default(field)


def _yaml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


PAGES: Mapping[str, Callable[[], str]] = {
    "clusters.md": clusters_page,
    "sweep-reference.md": sweep_page,
    **{f"studies/{study}.md": partial(study_page, study) for study in study_pages()},
}
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    """What links may point to: headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> list[tuple[str, str]]:
    """File and anchor of each link that stays in the checkout."""
    return [(file, anchor) for file, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text) if "://" not in file]
