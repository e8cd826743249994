"""HTML as values: whatever is not `Html` is escaped, so that names and reasons from records stay text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

VOID = frozenset({"meta", "br", "circle", "path", "line", "rect"})
"""Elements without content; those of SVG are closed, as HTML allows there."""


CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""What is written as code in a sentence."""


class Html(str):
    """Markup; a plain `str` is text."""


def tag(element: str, /, *children: str | None, **attributes: object) -> Html:
    """An element: `tag("td", "a < b", class_="num", data_v=3)`; attributes: None and False are left out, True stands alone."""
    opened = "".join([f"<{element}", *(_attribute(key, value) for key, value in attributes.items())])
    if element in VOID:
        return Html(f"{opened}/>")
    return Html(f"{opened}>{join(children)}</{element}>")


def join(children: Iterable[str | None]) -> Html:
    """Markup and text one after the other; None is nothing."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children if child is not None))


def prose(text: str) -> Html:
    """Text with what stands between backticks as code; a number and its per cent stay together."""
    pieces = CODE.split(text.replace(" %", "\u00a0%"))
    return join(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(_text(value))}"'


def _text(value: object) -> str:
    """Coordinates with a hundredth of a unit."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
