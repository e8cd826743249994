"""Where each line of a script stands in its templates: an extension of Jinja that puts a mark before every piece of literal text.

Marks change nothing else: a script without its marks is the script, byte for byte, and `render --explain` checks that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2.ext import Extension

if TYPE_CHECKING:
    from jinja2.lexer import Token, TokenStream

BEGIN, END = "\ue000", "\ue001"
"""Characters for private use, which no script has."""

MARK = re.compile(f"{BEGIN}([^{BEGIN}{END}]*){END}")

BLANK_LINES = re.compile(rf"\n(?:(?:{MARK.pattern.replace('(', '(?:', 1)})*\n){{2,}}")
"""Three line breaks or more, with marks between them."""


@dataclass(frozen=True, kw_only=True)
class TemplatePlace:
    """A line of a template."""

    file: str
    line: int
    block: str | None
    """The innermost block around it; None: in none, as in a file that another includes."""


@dataclass(frozen=True, kw_only=True)
class MarkedLine:
    """A line of a script, and the lines of templates that its literal text comes from, without repetition."""

    text: str
    places: tuple[TemplatePlace, ...]


class Marks(Extension):
    """The extension."""

    def filter_stream(self, stream: TokenStream) -> Any:
        """The tokens of a template, with a mark before each line of its literal text."""
        from jinja2.lexer import Token

        blocks: list[str] = []
        before: list[Token] = []  # of this tag, up to its name
        for token in stream:
            if token.type == "data":
                marked = _marked(token, stream.filename or stream.name or "", blocks[-1] if blocks else "")
                yield Token(token.lineno, token.type, marked)
                continue
            before = [] if token.type == "block_begin" else [*before, token]
            words = [str(each.value) for each in before]
            if len(words) == 2 and words[0] == "block":
                blocks.append(words[1])
            elif words == ["endblock"] and blocks:
                blocks.pop()
            yield token


def _marked(token: Token, file: str, block: str) -> str:
    pieces = token.value.splitlines(keepends=True)
    return "".join(f"{BEGIN}{token.lineno + at}|{block}|{file}{END}{piece}" for at, piece in enumerate(pieces))


def marked_lines(marked: str) -> Iterator[MarkedLine]:
    """The script's lines; one whose text comes from a value alone has the place of what follows the value."""
    lines = BLANK_LINES.sub("\n\n", marked).removesuffix("\n").split("\n")
    places = [tuple(dict.fromkeys(_place(mark) for mark in MARK.findall(line))) for line in lines]
    for at in reversed(range(len(lines) - 1)):
        places[at] = places[at] or places[at + 1]
    yield from (MarkedLine(text=MARK.sub("", line), places=found) for line, found in zip(lines, places, strict=True))


def _place(mark: str) -> TemplatePlace:
    line, block, file = mark.split("|", 2)
    return TemplatePlace(file=file, line=int(line), block=block or None)
