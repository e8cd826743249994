"""YAML 1.2 in: `1:30:00` and `no` stay text, a repeated key is an error, and every complaint has its file:line:column.

PyYAML with libyaml reads a cluster profile in 6 ms where ruamel.yaml takes 26. Its own rules for plain scalars are those of
YAML 1.1, so the ones of 1.2 (core schema, section 10.3.2) stand here. Small files that come to very much are refused:
anchors that multiply, and values that are nested without end.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hpcddp.core.errors import UsageError
from hpcddp.core.schema import Path, SchemaError, decode
from hpcddp.core.text import thousands

if TYPE_CHECKING:
    from yaml import Node

T = TypeVar("T")

NULL = re.compile(r"(?:~|null|Null|NULL|)$")
BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
FLOAT = re.compile(r"(?:[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")


def read_yaml(file: FilePath) -> Any:
    """The document as plain dicts, lists and scalars; UsageError with the position where it is not valid YAML."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"{file}: cannot be read: {reason}") from error
    return parse_yaml(text, str(file))


def parse_yaml(text: str, name: str) -> Any:
    """The same from text at hand; `name` is what complaints begin with."""
    import yaml

    try:
        with depth_refused(text):
            return yaml.load(text, Loader=_loader())  # a safe loader: tags that would run code are refused
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
        problem = "a tab; YAML is indented with spaces" if tab else error.problem or error.context
        raise UsageError(f"{name}{where}: {problem}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: {' '.join(str(error).split())}") from error


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


@functools.cache
def _loader() -> Any:
    """PyYAML's safe loader, with libyaml where it was built in, its scalars and keys by the rules of YAML 1.2."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str | None, list[tuple[str, re.Pattern[str]]]]] = {}

        def get_single_node(self) -> Any:
            """The document before any value is made of it."""
            node = super().get_single_node()
            if node is not None:
                count_repeated(node, {})
            return node

        def flatten_mapping(self, node: Any) -> None:
            """`<<` is a key like any other; a repeated key is refused."""
            keys = set()
            for key, _ in node.value:
                if not isinstance(key.value, str):
                    problem = "a key is a list or a mapping; `{` and `[` open those, so quote text that begins with one"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                if key.value in keys:
                    problem = f"found duplicate key `{key.value}`"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                keys.add(key.value)

    for tag, pattern in (("null", NULL), ("bool", BOOL), ("int", INT), ("float", FLOAT)):
        Loader.yaml_implicit_resolvers.setdefault(None, []).append((f"tag:yaml.org,2002:{tag}", pattern))
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _int(loader.construct_scalar(node)))
    Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: _float(loader.construct_scalar(node)))
    return Loader


def _int(text: str) -> int:
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _position(file: FilePath, path: Path) -> tuple[int, int]:
    """1-based line and column of the deepest part of `path` that is in the file."""
    import yaml

    node = yaml.compose(file.read_text(encoding="utf-8"), Loader=_loader())  # it has been read before: it is not too deep
    mark = node.start_mark if node is not None else None
    while path and (found := _child(node, path[0])):
        (mark, node), path = found, path[1:]
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _child(node: Any, part: object) -> tuple[Any, Any] | None:
    """Position and node of one key of a mapping, or one entry of a list."""
    if isinstance(part, int) and isinstance(node.value, list) and part < len(node.value):
        item = node.value[part]
        return (item.start_mark, item) if not isinstance(item, tuple) else None
    pairs = node.value if node.id == "mapping" else ()
    return next(((key.start_mark, value) for key, value in pairs if key.value == part), None)


REPEATED = 100_000
"""Values at most that aliases (`*name`) repeat in a file: sweeps of thousands of points have a tenth of it, and what reads it
takes a second. Without a limit nine anchors of nine aliases each come to 4 x 10^8 values, in 400 bytes."""

DEPTH = 50
"""Of lists and mappings in each other; no key of ours is deeper than six."""

MANY_BRACKETS = 2000
"""From so many on the depth is looked up before libyaml composes the document, which ends the process (a stack that overflows)
from some 10,000 on. Files of fewer pay nothing."""


@contextmanager
def depth_refused(text: str) -> Iterator[None]:
    """ConstructorError at the place where `text` is nested too deep for what composes it in this block."""
    import yaml

    own = yaml.scanner.ScannerError, yaml.parser.ParserError
    try:
        if sum(map(text.count, ("[", "{", "-", "?"))) >= MANY_BRACKETS:  # nesting by indentation alone takes megabytes
            _refuse_depth(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        yield
    except (*own, RecursionError):
        with suppress(*own):  # libyaml of PyYAML 6.0.4 refuses depth in its own words, before it gives an event
            _refuse_depth(text, yaml.SafeLoader)
        raise


def _refuse_depth(text: str, loader: Any) -> None:
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH:
            raise _refused("too_deep", event)


def count_repeated(node: Node, known: dict[int, tuple[int, int] | None], levels: int = DEPTH) -> tuple[int, int]:
    """How many values `node` stands for once aliases are filled in, and how many of them are repeated; each is looked at once.
    ConstructorError at the value that repeats too many, or itself, or is nested too deep. `known`: by node, what has been
    counted, None while it is.
    """
    if not levels and not isinstance(node.value, str):
        raise _refused("too_deep", node)
    known[id(node)] = None
    values, repeated = 1, 0
    for child in _children(node):
        if id(child) in known:
            counted = known[id(child)]
            if counted is None:
                raise _refused("in_itself", node)
            repeated += counted[0] - counted[1]
        else:
            counted = count_repeated(child, known, levels - 1)
        values += counted[0]
        repeated += counted[1]
    if repeated > REPEATED:
        raise _refused("too_many", node)
    known[id(node)] = values, repeated
    return values, repeated


def _children(node: Node) -> list[Node]:
    """Of a mapping keys and values, of a list its entries, of a scalar none."""
    items = () if isinstance(node.value, str) else node.value
    return [part for item in items for part in (item if isinstance(item, tuple) else (item,))]


PROBLEMS = {
    "too_deep": f"lists and mappings are nested more than {DEPTH} deep here; write them flat",
    "in_itself": "this value contains itself; write it out",
    "too_many": f"anchors and aliases expand to more than {thousands(REPEATED)} values here; write out those you need",
}


def _refused(problem: str, where: Any) -> Exception:
    import yaml

    return yaml.constructor.ConstructorError(None, None, PROBLEMS[problem], where.start_mark)
