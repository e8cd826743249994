"""Small files that come to very much: anchors that multiply, and values that are nested without end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import Node

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
    "in_itself": "this value is repeated in itself; write out what is meant",
    "too_many": f"anchors and aliases come to more than {REPEATED:,} values here; write out those that are meant",
}


def _refused(problem: str, where: Any) -> Exception:
    import yaml

    return yaml.constructor.ConstructorError(None, None, PROBLEMS[problem], where.start_mark)
