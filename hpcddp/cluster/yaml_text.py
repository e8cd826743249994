"""The document of a profile as YAML: a fact a line with its source as keys, or a value with its source as a comment."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpcddp.cluster.profile import Fact
from hpcddp.cluster.yamlfile import BOOL, FLOAT, INT, NULL
from hpcddp.core.schema import encode

WIDTH = 128
"""Of a line; a longer fact takes a line for each of its parts."""

TEXT_WIDTH = 100
"""Of texts and comments."""


@dataclass(frozen=True)
class Noted:
    """A value with a comment: behind it, or above where that is too long."""

    value: object
    words: str


def yaml_text(document: Mapping[str, object], comments: Mapping[str, str] | None = None) -> str:
    """The document; `comments`: what stands above its keys."""
    lines: list[str] = []
    for key, value in document.items():
        if comments and key in comments:
            lines += ["", *comment(comments[key])]
        lines += _entry(key, value, "")
    return "\n".join(lines) + "\n"


def comment(text: str, indent: str = "") -> list[str]:
    """Its lines."""
    return _wrapped(text, f"{indent}# ")


def _wrapped(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        text, TEXT_WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False, break_long_words=False
    )


def _entry(key: str, value: object, indent: str, width: int = 0) -> Iterator[str]:
    """`key: value`, over as many lines as it takes; `width` of the keys beside it."""
    start = f"{indent}{scalar(key)}:".ljust(len(indent) + width)
    match value:
        case Fact():
            yield from _fact(start, value, indent)
        case Noted():
            first, *rest = _entry(key, value.value, indent)
            line = f"{first}  # {value.words}"
            yield from [line] if len(line) <= TEXT_WIDTH else [*comment(value.words, indent), first]
            yield from rest
        case Mapping() if value and not (len(value) == 1 and isinstance(next(iter(value.values())), str)):
            yield start.rstrip()
            yield from _mapping(value, indent + "  ")
        case list() if value and all(isinstance(item, Mapping) and item for item in value):
            yield start.rstrip()
            for item in value:
                first, *rest = _mapping(item, indent + "    ")
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        case str() if "\n" in value and not value[0].isspace() and not value.endswith("\n\n"):
            text = value.removesuffix("\n")
            yield f"{start.rstrip()} {'|-' if text == value else '|'}"
            yield from (f"{indent}  {line}" if line else "" for line in text.split("\n"))
        case str() if len(start) + len(value) > WIDTH:
            yield f"{start.rstrip()} >-"
            yield from _wrapped(value, f"{indent}  ")
        case _:
            yield f"{start} {flow(value)}"


def _mapping(values: Mapping[str, object], indent: str) -> Iterator[str]:
    apart = all(isinstance(value, Mapping) for value in values.values())
    width = max((len(scalar(key)) + 1 for key, value in values.items() if isinstance(value, Fact)), default=0)
    for key, value in values.items():
        if apart and value is not next(iter(values.values())):
            yield ""
        yield from _entry(key, value, indent, width)


def _fact(start: str, fact: Fact, indent: str) -> Iterator[str]:
    parts: dict[str, object] = encode(fact, keep_defaults=False)
    line = f"{start} {flow(parts)}"
    if len(line) <= WIDTH:
        yield line
        return
    yield start.rstrip()
    for key, value in parts.items():
        yield from _entry(key, value, indent + "  ")


def flow(value: object) -> str:
    """A value on one line."""
    if isinstance(value, Noted):
        return flow(value.value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def scalar(value: object) -> str:
    """In double quotes where it would be read as something else, within brackets too."""
    import yaml

    text = yaml.safe_dump([value], default_flow_style=True, width=10**9, allow_unicode=True).strip()[1:-1]
    if not isinstance(value, str):
        return text
    is_plain = text == value and not any(kind.fullmatch(value) for kind in (NULL, BOOL, INT, FLOAT))  # of YAML 1.2
    return value if is_plain else json.dumps(value, ensure_ascii=False)
