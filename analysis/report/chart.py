"""One panel of a chart as inline SVG: lines, and marks that carry their values for whoever points at them.

Colours are classes that the page's style gives values to, so that a panel follows light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcddp.analysis.figures.labels import spread_out
from hpcddp.analysis.report.html import Html, join, tag

WIDTH, HEIGHT = 440.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 378.0, 12.0, 222.0
"""Of the plotting area; to its right the lines' last values."""

LINE = 15.0
"""Height of a line of text."""

CAP = 4.0
"""Half the width of an interval's ends."""

SHAPES = {
    "o": "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
    "s": "M-4,-4h8v8h-8z",
    "^": "M0,-5l5,9h-10z",
    "D": "M0,-5.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z",
    "v": "M0,5l5,-9h-10z",
    "x": "M-4.5,-4.5l9,9M-4.5,4.5l9,-9",
}
"""matplotlib's marker -> path about its middle."""


@dataclass(frozen=True)
class Axis:
    """`ticks`: value -> lines of text."""

    low: float
    high: float
    ticks: Mapping[float, Sequence[str]]
    log: bool = False

    def share(self, value: float) -> float:
        """Where the value lies, 0 at the low end and 1 at the high one."""
        low, high, at = (math.log(each) if self.log else each for each in (self.low, self.high, value))
        return (at - low) / (high - low)


@dataclass(frozen=True)
class Line:
    """`colour` is a class of the page's style."""

    points: Sequence[tuple[float, float]]
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Mark:
    """A measured value with its spread; `values` (name -> text) is what it shows of itself."""

    x: float
    y: float
    colour: str
    values: Mapping[str, str]
    low: float | None = None
    high: float | None = None
    shape: str = "o"
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """What a panel shows; `label` names it for those who do not see it."""

    label: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    ends: Sequence[tuple[float, str, str]] = ()
    """(y, text, colour) beside the right edge."""
    x_names: Sequence[str] = field(default=())
    """What each line of the x ticks' text counts."""


def panel(drawn: Panel) -> Html:
    """The SVG element, as wide as its place."""
    return tag(
        "svg",
        *_grid(drawn),
        *(_line(drawn, line) for line in drawn.lines),
        *(_mark(drawn, mark) for mark in drawn.marks),
        *_ends(drawn),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        class_="chart",
        role="group",
        aria_label=drawn.label,
    )


def tip(values: Mapping[str, str]) -> dict[str, object]:
    """Attributes of an element that shows these values when pointed at, and speaks them."""
    flat = {name: " ".join(text.split()) for name, text in values.items()}
    return {
        "data_tip": "\n".join(f"{name}\t{text}" for name, text in flat.items()),
        "role": "img",
        "aria_label": ", ".join(f"{name} {text}".strip() for name, text in flat.items()),
    }


def _x(drawn: Panel, value: float) -> float:
    return LEFT + drawn.x.share(value) * (RIGHT - LEFT)


def _y(drawn: Panel, value: float) -> float:
    return BOTTOM - drawn.y.share(value) * (BOTTOM - TOP)


def _grid(drawn: Panel) -> list[Html]:
    """Lines at the y ticks, and the ticks' text."""
    heights = [(_y(drawn, value), texts[0]) for value, texts in drawn.y.ticks.items()]
    rows = [tag("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y) for y, _ in heights]
    names = [tag("text", text, class_="tick", x=LEFT - 8, y=y + 4, text_anchor="end") for y, text in heights]
    below = [
        tag("text", text, class_="tick", x=_x(drawn, value), y=BOTTOM + 4 + LINE * (i + 1), text_anchor="middle")
        for value, texts in drawn.x.ticks.items()
        for i, text in enumerate(texts)
    ]
    what = [
        tag("text", text, class_="tick faint", x=LEFT - 16, y=BOTTOM + 4 + LINE * (i + 1), text_anchor="end")
        for i, text in enumerate(drawn.x_names)
    ]
    return [*rows, tag("line", class_="axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM), *names, *below, *what]


def _line(drawn: Panel, line: Line) -> Html:
    path = "M" + "L".join(f"{_x(drawn, x):.1f},{_y(drawn, y):.1f}" for x, y in line.points)
    return tag("path", d=path, class_=f"line {line.colour}{' dashed' if line.dashed else ''}")


def _mark(drawn: Panel, mark: Mark) -> Html:
    x, y = _x(drawn, mark.x), _y(drawn, mark.y)
    spread = None
    if mark.low is not None and mark.high is not None:
        low, high = _y(drawn, mark.low), _y(drawn, mark.high)
        caps = f"M{x - CAP:.1f},{low:.1f}h{2 * CAP:g}M{x - CAP:.1f},{high:.1f}h{2 * CAP:g}"
        spread = tag("path", d=f"M{x:.1f},{low:.1f}V{high:.1f}{caps}", class_="spread")
    symbol = _symbol(mark.shape, mark.hollow, f"translate({x:.1f} {y:.1f})")
    reach = tag("circle", class_="reach", cx=x, cy=y, r=13.0)
    return tag("g", spread, symbol, reach, class_=f"mark {mark.colour}", **tip(mark.values))


def _ends(drawn: Panel) -> list[Html]:
    """Moved apart where they would be written over each other."""
    ordered = sorted(drawn.ends, key=lambda end: _y(drawn, end[0]))
    heights = spread_out([_y(drawn, y) for y, *_ in ordered], LINE)
    return [
        tag("text", text, class_=f"end {colour}", x=RIGHT + 10, y=height + 4)
        for (_, text, colour), height in zip(ordered, heights, strict=True)
    ]


def _symbol(shape: str, hollow: bool, place: str) -> Html:
    return tag("path", d=SHAPES[shape], transform=place, class_="hollow" if hollow else "dot")


def swatch(text: str, colour: str, shape: str, hollow: bool = False) -> Html:
    """One entry of a legend; `shape`: a mark's, or dashed."""
    if shape == "dashed":
        drawn = tag("path", d="M0,6H20", class_=f"line {colour} dashed")
    else:
        drawn = tag("g", _symbol(shape, hollow, "translate(10 6)"), class_=colour)
    return tag("li", tag("svg", drawn, viewBox="0 0 20 12", class_="swatch", aria_hidden="true"), text)


def legend(entries: Sequence[Html]) -> Html:
    """Above a chart."""
    return tag("ul", join(entries), class_="legend")


def figure(title: str, name: str, key: Html, drawn: Html) -> Html:
    """A caption (`name`: which of several), a legend and what is drawn."""
    caption = tag("figcaption", tag("strong", title), tag("span", name) if name else None)
    return tag("figure", caption, key, drawn)
